package report

import (
	"time"

	"github.com/labstack/echo/v4"

	"millrace/web/ui"
)

// Month reads the month an address asks for: a UTC calendar month that has begun, else the running one.
func Month(c echo.Context, now time.Time) Span {
	now = now.UTC()
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	if t, err := time.Parse("2006-01", c.QueryParam("month")); err == nil && !t.After(first) {
		first = t
	}
	return Span{From: first, To: first.AddDate(0, 1, 0), Step: StepDay}
}

// monthsShown is how many months pages offer.
const monthsShown = 6

// Months are links to the last months.
func Months(c echo.Context, month Span, now time.Time) []ui.Segment {
	now, u := now.UTC(), AddressOf(c)
	this := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	var out []ui.Segment
	for i := monthsShown - 1; i >= 0; i-- {
		m := this.AddDate(0, -i, 0)
		out = append(out, ui.Segment{Href: u.With("month", m.Format("2006-01")), Text: m.Format("Jan"), On: m.Equal(month.From)})
	}
	return out
}
