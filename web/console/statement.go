package console

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/statement"
	"millrace/web/ui"
)

const statementTop = "/billing/statement"

func (p *pages) registerStatement(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	g.GET(statementTop, in(p.statement))
	g.GET(statementTop+"/:day", in(p.statementDay))
}

func (p *pages) statement(c echo.Context) error {
	now := p.Clock.Now()
	month := report.Month(c, now)
	s, err := p.Read.Statement(c.Request().Context(), session.Must(c), month)
	if err != nil {
		return err
	}
	g := s.Grid(func(at time.Time) string { return statementTop + "/" + at.UTC().Format(time.DateOnly) }, nil)
	switch c.QueryParam("format") {
	case "csv":
		return ui.CSV(c, "statement-"+month.From.Format("2006-01"), g)
	case "json":
		return s.JSON(c)
	}
	u := report.AddressOf(c)
	return ui.Render(c, http.StatusOK, statement.Body(statement.View{
		Page: ui.Page{Title: "Statement", Path: "/billing", Up: &ui.Link{Href: "/billing", Text: "Billing"}, Lead: month.From.Format("January 2006") + " · a UTC calendar month"},
		S:    s, Grid: g, Months: report.Months(c, month, now), CSV: u.With("format", "csv"), JSON: u.With("format", "json")}))
}

func (p *pages) statementDay(c echo.Context) error {
	day, err := time.Parse(time.DateOnly, c.Param("day"))
	if err != nil {
		return fault.New(fault.NotFound, "There is no such day.")
	}
	after, u := c.QueryParam("after"), report.AddressOf(c)
	s, err := p.Read.StatementDay(c.Request().Context(), session.Must(c), day, after)
	if err != nil {
		return err
	}
	g := s.Grid(func(id ids.ID) string { return "/requests/" + ids.Format(ids.Request, id) })
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "statement-"+day.Format(time.DateOnly), g)
	}
	var paging ui.Paging
	if after != "" {
		paging.First = u.With()
	}
	if s.Next != "" {
		paging.Next = u.With("after", s.Next)
	}
	page := ui.Page{Title: "Usage of " + day.Format("2 January 2006"), Path: "/billing", Up: &ui.Link{Href: statementTop + "?month=" + day.Format("2006-01"), Text: "Statement"},
		Lead: ui.FormatCount(s.Requests) + " requests were booked on this UTC day; together they cost " + ui.FormatMoney(s.Charged) + ", the line of the statement."}
	return ui.Render(c, http.StatusOK, statementDayPage(page, g, paging, u.With("format", "csv", "after", after)))
}
