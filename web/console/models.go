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

// shownClasses are the classes that any of the models has a price for; input and output always.
func shownClasses(models []Model) []usage.Class {
	var out []usage.Class
	for _, c := range ui.PricedClasses {
		use := c == usage.Input || c == usage.Cached || c == usage.Output
		for _, m := range models {
			use = use || m.Prices[c] != 0
		}
		if use {
			out = append(out, c)
		}
	}
	return out
}

func modelGrid(models []Model) ui.Grid {
	g := ui.Grid{
		Caption: "Models and prices per 1M tokens", Cards: true,
		Columns: []ui.Column{{Name: "Model"}, {Name: "Context", Num: true}, {Name: "Longest answer", Num: true}},
		Empty:   ui.Blank{Icon: "boxes", Title: "No models yet", Text: "Your provider has not opened a model to your organization."},
	}
	classes := shownClasses(models)
	for _, c := range classes {
		g.Columns = append(g.Columns, ui.Column{Name: ui.ClassName(c), Num: true})
	}
	g.Columns = append(g.Columns, ui.Column{Name: "Status"})
	for _, m := range models {
		row := ui.Row{ui.N(modelName(m.Name, m.Simulated), m.Name), ui.Tok(m.Context), ui.Tok(m.MaxOutput)}
		for _, c := range classes {
			if c == usage.Requests {
				row = append(row, ui.T(ui.ExactPico(m.Prices[c])))
			} else {
				row = append(row, ui.PerM(m.Prices[c]))
			}
		}
		if m.Available {
			row = append(row, ui.N(ui.Tag(ui.Good, "available"), "available"))
		} else {
			row = append(row, ui.N(ui.Tag(ui.Quiet, "not served"), "not served"))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}
