package console

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/usage"
	"millrace/web/session"
	"millrace/web/ui"
)

func (p *pages) models(c echo.Context) error {
	models, err := p.Read.Models(c.Request().Context(), session.Must(c))
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Models", Path: "/models", Lead: "Prices in dollars per 1M tokens. A request is charged at the price in force when it starts."}
	return ui.Render(c, http.StatusOK, modelsPage(page, modelGrid(models), models))
}

func modelGrid(models []Model) ui.Grid {
	g := ui.Grid{
		Caption: "Models and prices per 1M tokens", Cards: true,
		Columns: []ui.Column{{Name: "Model"}, {Name: "Context", Num: true}, {Name: "Longest answer", Num: true}},
		Empty:   ui.Blank{Icon: "boxes", Title: "No models yet", Text: "Your provider has not opened a model to your organization."},
	}
	var lists []usage.Prices
	for _, m := range models {
		lists = append(lists, m.Prices)
		for _, s := range m.Terms.Steps {
			lists = append(lists, s.Prices)
		}
	}
	classes := ui.ClassesWithPrices(lists...)
	for _, c := range classes {
		g.Columns = append(g.Columns, ui.Column{Name: ui.ClassName(c), Num: true})
	}
	g.Columns = append(g.Columns, ui.Column{Name: "Status"})
	for _, m := range models {
		name := ui.N(modelName(m.Name, m.Simulated), m.Name)
		if len(m.Terms.Steps) > 0 {
			name = name.WithSub("prompts up to " + ui.FormatCount(m.Terms.Steps[0].Above) + " tokens")
		}
		row := ui.PriceRow(ui.Row{name, ui.Tok(m.Context), ui.Tok(m.MaxOutput)}, m.Prices, classes)
		if m.Available {
			row = append(row, ui.N(ui.Tag(ui.Good, "available"), "available"))
		} else {
			row = append(row, ui.N(ui.Tag(ui.Quiet, "not served"), "not served"))
		}
		g.Rows = append(g.Rows, row)
		for _, s := range m.Terms.Steps {
			g.Rows = append(g.Rows, append(ui.PriceRow(ui.Row{ui.T(m.Name).WithSub(ui.Above(s.Above)), ui.Tok(m.Context), ui.Tok(m.MaxOutput)}, s.Prices, classes), ui.T("")))
		}
	}
	return g
}
