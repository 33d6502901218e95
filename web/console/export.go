package console

import (
	"github.com/labstack/echo/v4"

	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

const exportNote = "One archive: the rows, and a manifest with their number, sums and SHA-256 checksum. All rows are of one moment. Requests are in it once they are rated, within seconds of their end."

func (p *pages) export(c echo.Context) error {
	who := session.Must(c)
	now := p.Clock.Now().In(who.Location())
	page := ui.Page{Title: "Download usage", Path: "/usage", Up: &ui.Link{Href: "/usage", Text: "Usage"},
		Lead: "Days begin at midnight in " + ui.ZoneName(who.Location(), now) + "."}
	return report.ExportForm(c, page, report.SpanOf(c.QueryParam, now), []ui.Option{
		{Value: "usage", Text: "Requests: one row each, with tokens, price version and charge"},
		{Value: "costs", Text: "Costs: one row per UTC day, project, model and price version, in FOCUS columns"},
	}, exportNote)
}

func (p *pages) exportFile(c echo.Context) error {
	who := session.Must(c)
	x, err := report.ExportOf(c, who.Location())
	if err != nil {
		return err
	}
	f, err := p.Read.Export(c.Request().Context(), who, x)
	if err != nil {
		return err
	}
	return report.Send(c, f)
}
