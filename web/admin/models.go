package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/web/session"
	"millrace/web/ui"
)

const modelsTop = Root + "/models"

func modelPath(id ids.ID) string { return modelsTop + "/" + ids.Format(ids.Model, id) }

func (p *pages) models(c echo.Context) error {
	models, err := p.Read.Models(c.Request().Context())
	if err != nil {
		return err
	}
	g := ui.Grid{
		Caption: "Models with prices per 1M tokens", Cards: true,
		Columns: []ui.Column{{Name: "Model"}, {Name: "Units", Num: true}, {Name: "Input", Num: true}, {Name: "Cached input", Num: true}, {Name: "Output", Num: true}, {Name: "Price since"}, {Name: "Status"}},
		Empty: ui.Blank{Icon: "tags", Title: "No models yet", Text: "A model appears when a unit serves it: join a host, or attach an engine that already runs.",
			Action: ui.Link{Href: unitsTop + "/attach", Text: "Attach an engine"}},
	}
	for _, m := range models {
		since := ui.At(m.Since)
		if !m.Next.IsZero() {
			since = since.WithSub("changes " + m.Next.UTC().Format("2 Jan 2006 15:04 UTC"))
		}
		tone, state := m.state()
		g.Rows = append(g.Rows, ui.Row{
			ui.N(modelName(m.Name, modelPath(m.ID), m.Simulated), m.Name), ui.C(m.Units), price(m, usage.Input), price(m, usage.Cached), price(m, usage.Output),
			since, ui.N(ui.Tag(tone, state), state),
		})
	}
	page := ui.Page{Title: "Models and prices", Path: modelsTop, Lead: "Dollars per 1M tokens. A request is charged at the version in force when it starts."}
	return ui.Render(c, http.StatusOK, modelsPage(page, g))
}

func price(m Model, c usage.Class) ui.Cell {
	if !m.Priced {
		return ui.T("–")
	}
	return ui.PerM(m.Prices[c])
}

func (m Model) state() (ui.Tone, string) {
	switch {
	case !m.Priced:
		return ui.Warn, "needs a price"
	case m.Units == 0:
		return ui.Quiet, "not served"
	}
	return ui.Good, "on sale"
}

func (p *pages) model(c echo.Context) error {
	id, err := pathID(c, ids.Model)
	if err != nil {
		return err
	}
	m, err := p.Read.Model(c.Request().Context(), id)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Prices of " + m.Name, Head: m.Name, Path: modelsTop, Up: &ui.Link{Href: modelsTop, Text: "Models and prices"}, Lead: "Versions are never edited. Requests keep the version they started with."}
	switch c.QueryParam("done") {
	case "price":
		page.Toast = "Price published. Every gateway has it within a second."
	case "cancelled":
		page.Toast = "Price cancelled. It never came into force."
	case "attached":
		page.Toast = "Engine attached. It is called as soon as the model has a price."
	}
	return ui.Render(c, http.StatusOK, modelPage(page, m, p.versionGrid(m)))
}

// versionGrid lists the versions with what is in force, ahead or over.
func (p *pages) versionGrid(m ModelDetail) ui.Grid {
	g := ui.Grid{Caption: "Price versions, newest first", Cards: true, Columns: []ui.Column{{Name: "In force from"}, {Name: "Status"}},
		Empty: ui.Blank{Icon: "tags", Title: "No price yet", Text: "A model without a price is not offered to anyone.", Action: ui.Link{Href: modelPath(m.ID) + "/price", Text: "Set a price"}}}
	classes := pricedIn(m.Versions)
	for _, c := range classes {
		g.Columns = append(g.Columns, ui.Column{Name: ui.ClassName(c), Num: true})
	}
	g.Columns = append(g.Columns, ui.Column{Name: "Published"}, ui.Column{Name: "Note", Wrap: true})
	now, seen := p.Clock.Now(), false
	blanks := make([]ui.Cell, len(g.Columns))
	for _, v := range m.Versions {
		tone, state := ui.Quiet, "over"
		switch {
		case v.Effective.After(now):
			tone, state = ui.Info, "ahead"
		case !seen:
			tone, state, seen = ui.Good, "in force", true
		}
		cancel := ""
		if v.canCancel(now) {
			cancel = cancelPath(m.ID, v.ID)
		}
		row := ui.PriceRow(ui.Row{ui.At(v.Effective), ui.N(versionStatus(tone, state, cancel), state)}, v.Prices, classes)
		g.Rows = append(g.Rows, append(row, ui.At(v.Published).WithSub(v.By), ui.T(v.Note)))
		for _, s := range v.Terms.Steps {
			step := ui.PriceRow(ui.Row{ui.T(ui.Above(s.Above)), ui.T("")}, s.Prices, classes)
			g.Rows = append(g.Rows, append(step, blanks[:len(g.Columns)-len(step)]...))
		}
	}
	return g
}

// pricedIn are the classes any of the versions has a price for, at any prompt length; input, cached input and output always.
func pricedIn(versions []PriceVersion) []usage.Class {
	var lists []usage.Prices
	for _, v := range versions {
		lists = append(lists, v.Prices)
		for _, s := range v.Terms.Steps {
			lists = append(lists, s.Prices)
		}
	}
	return ui.ClassesWithPrices(lists...)
}

func (p *pages) palette(c echo.Context) error {
	ctx := c.Request().Context()
	items := ui.PalettePages(ui.Operator)
	list, err := p.Read.Customers(ctx, "", "")
	if err != nil {
		return err
	}
	for _, x := range list.Rows {
		items = append(items, ui.PaletteItem{Href: customerPath(x.ID), Name: x.Name, Kind: "customer"})
	}
	models, err := p.Read.Models(ctx)
	if err != nil {
		return err
	}
	for _, m := range models {
		items = append(items, ui.PaletteItem{Href: modelPath(m.ID), Name: m.Name, Kind: "prices"})
	}
	units, err := p.Read.Units(ctx)
	if err != nil {
		return err
	}
	for _, u := range units {
		items = append(items, ui.PaletteItem{Href: unitPath(u.ID), Name: u.Name, Kind: "unit"})
	}
	if v := session.Must(c); v.Org != ids.Nil {
		items = append(items, ui.PaletteItem{Href: "/", Name: "Customer console of " + v.OrgName, Kind: "switch"})
	}
	return ui.Render(c, http.StatusOK, ui.PaletteList(items))
}
