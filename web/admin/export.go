package admin

import (
	"time"

	"github.com/labstack/echo/v4"

	"millrace/web/report"
	"millrace/web/ui"
)

func (p *pages) export(c echo.Context) error {
	now := p.Clock.Now().UTC()
	span := report.Month(c, now)
	if span.To.After(now) {
		span.To = report.Day(now, 1)
	}
	page := ui.Page{Title: "Download revenue", Path: Root + "/revenue", Up: &ui.Link{Href: Root + "/revenue", Text: "Revenue"}, Lead: "All customers · UTC days"}
	kinds := []ui.Option{
		{Value: "revenue", Text: "Revenue: one row per day, customer, project, model and price version"},
		{Value: "usage", Text: "Requests: one row each, of all customers"},
		{Value: "months", Text: "Months: one row per accounting month that begins in the range, and customer"},
	}
	for i, k := range kinds {
		if k.Value == c.QueryParam("kind") {
			kinds[0], kinds[i] = kinds[i], kinds[0]
		}
	}
	return report.ExportForm(c, page, span, kinds, "One archive: the rows, and a manifest with their number, sums and SHA-256 checksum. For very large exports use millrace export, which can be resumed.")
}

func (p *pages) exportFile(c echo.Context) error {
	x, err := report.ExportOf(c, time.UTC)
	if err != nil {
		return err
	}
	f, err := p.Read.Export(c.Request().Context(), x)
	if err != nil {
		return err
	}
	return report.Send(c, f)
}
