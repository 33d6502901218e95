package console

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

// homeView is the home page ready to draw.
type homeView struct {
	Home
	page    ui.Page
	canKeys bool
	canCaps bool
	metric  report.Metric
	links   []ui.Segment
	chart   ui.Bars
	empty   bool // nothing was used in the chart's report.Span
	month   string
}

func (p *pages) home(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	now := p.Clock.Now().In(who.Location())
	h, err := p.Read.Home(ctx, who)
	if err != nil {
		return err
	}
	s := report.SpanOf(func(string) string { return "" }, now)
	cells, err := p.Read.Usage(ctx, who, report.Query{From: s.From.UTC(), To: s.To.UTC(), Zone: who.Location(), Step: s.Step, Group: report.ByModel})
	if err != nil {
		return err
	}
	m := report.MetricOf(c.QueryParam("metric"))
	rep := report.New(cells, s, report.ByModel, m)
	v := homeView{
		Home: h, canKeys: who.May.Has(session.PermKeys), canCaps: who.May.Has(session.PermCaps),
		metric: m, links: m.Links(report.AddressOf(c)), chart: rep.Bars(m, m.Title()+" by model, last 30 days"),
		empty: rep.Total.Requests == 0 && rep.Total.Cost == 0,
		month: now.Format("January"),
		page: ui.Page{Title: "Home", Path: "/", Events: []string{"usage", "keys", "credit"},
			Lead: who.OrgName + " · times in " + ui.ZoneName(who.Location(), now)},
	}
	return ui.Render(c, http.StatusOK, homePage(v))
}

// started reports that the first steps are done.
func (h homeView) started() bool { return h.HasCredit && h.HasKey && h.HasCall }

func (h homeView) steps() []ui.Step {
	return []ui.Step{
		{Name: "Have credit", Text: "Requests are paid from your balance. Your provider grants or sells it to you.", Done: h.HasCredit,
			Action: ui.Link{Href: "/billing", Text: "See billing"}},
		{Name: "Create an API key", Text: "It is shown once. A monthly cap on it stops usage at 100 %.", Done: h.HasKey,
			Action: ui.Link{Href: "/keys/new", Text: "Create a key"}},
		{Name: "Send a first request", Text: "Copy the ready curl line of your new key, or try the playground. It appears here by itself.", Done: h.HasCall,
			Action: ui.Link{Href: "/playground", Text: "Open the playground"}},
	}
}

// runway says how long the balance lasts at the rate of the last seven days.
func (h homeView) runway() string {
	const week = 7
	switch {
	case h.Balance.Total <= 0:
		return "nothing left: requests are refused until credit is added"
	case h.SpentWeek <= 0:
		return "nothing spent in the last 7 days"
	}
	days := int64(h.Balance.Total) / max(int64(h.SpentWeek)/week, 1)
	switch {
	case days < 1:
		return "less than a day at the last 7-day rate"
	case days == 1:
		return "about 1 day at the last 7-day rate"
	case days > 365:
		return "more than a year at the last 7-day rate"
	}
	return fmt.Sprintf("about %d days at the last 7-day rate", days)
}

// parts says what the balance is made of beside plain credit.
func (b Balance) parts() string {
	text := ""
	if b.Promo > 0 {
		text = ui.FormatMoney(b.Promo) + " of it promotional"
		if !b.PromoEnds.IsZero() {
			text += ", ends " + b.PromoEnds.Format("2 Jan 2006")
		}
	}
	if b.Held > 0 {
		if text != "" {
			text += " · "
		}
		text += ui.FormatMoney(b.Held) + " held for running requests"
	}
	return text
}

func (h homeView) capText() string {
	return fmt.Sprintf("%d\u00a0%% of the %s cap · stops usage at 100\u00a0%%", ui.Percent(int64(h.Month), int64(*h.Cap)), ui.FormatMoney(*h.Cap))
}

func (h homeView) requests() (sum, errors int64) {
	for _, p := range h.Hours {
		sum, errors = sum+p.Requests, errors+p.Errors
	}
	return sum, errors
}

// hourly is one measure of the last 24 hours for a spark.
func (h homeView) hourly(of func(HourPoint) int64) (names []string, values []int64) {
	for _, p := range h.Hours {
		names, values = append(names, p.Start.Format("15:04")), append(values, of(p))
	}
	return names, values
}

func hourRequests(p HourPoint) int64 { return p.Requests }
func hourErrors(p HourPoint) int64   { return p.Errors }
func hourFirst(p HourPoint) int64    { return int64(p.FirstTok) }

func latency(v int64) string { return ui.FormatLatency(time.Duration(v)) }

func savedNote(h homeView) string {
	if h.Prompt == 0 {
		return "repeated prompt beginnings are read from a cache at a lower price"
	}
	return ui.FormatShare(h.Cached, h.Prompt) + " of prompt tokens came from the cache"
}
