package admin

import (
	"time"

	"github.com/labstack/echo/v4"

	"millrace/web/report"
	"millrace/web/ui"
)

func (p *pages) export(c echo.Context) error {
	now := p.Clock.Now().UTC()
	first := monthOf(c, now)
	span := report.Span{From: first, To: first.AddDate(0, 1, 0)}
	if span.To.After(now) {
		span.To = report.Day(now, 1)
	}
	page := ui.Page{Title: "Download revenue", Path: Root + "/revenue", Up: &ui.Link{Href: Root + "/revenue", Text: "Revenue"}, Lead: "All customers · UTC days"}
	return report.ExportForm(c, page, span, []ui.Option{
		{Value: "revenue", Text: "Revenue: one row per day, customer, project, model and price version"},
		{Value: "usage", Text: "Requests: one row each, of all customers"},
	}, "One archive: the rows, and a manifest with their number, sums and SHA-256 checksum. For very large exports use millrace export, which can be resumed.")
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

// monthOf is the UTC month that the address asks for; a bad or future one is this month.
func monthOf(c echo.Context, now time.Time) time.Time {
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	if t, err := time.Parse("2006-01", c.QueryParam("month")); err == nil && !t.After(first) {
		return t
	}
	return first
}
