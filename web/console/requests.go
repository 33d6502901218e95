package console

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

// requestsPerPage is one page of the list.
const requestsPerPage = 40

// requestsView is the list ready to draw.
type requestsView struct {
	page   ui.Page
	form   *ui.Form
	models []ui.Option
	keys   []ui.Option
	grid   ui.Grid
	paging ui.Paging
	csv    string
}

func (p *pages) requests(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	u := report.AddressOf(c)
	q := RequestQuery{After: c.QueryParam("after"), Limit: requestsPerPage, Model: c.QueryParam("model"), Failed: c.QueryParam("ended") == "failed"}
	if k := c.QueryParam("key"); k != "" {
		id, err := ids.Parse(ids.Key, k)
		if err != nil {
			return c.Redirect(http.StatusSeeOther, u.With("key", ""))
		}
		q.Key = id
	}
	list, err := p.Read.Requests(ctx, who, q)
	if err != nil {
		return err
	}
	v := requestsView{
		page: ui.Page{Title: "Requests", Path: "/requests", Lead: "Every call, with what it cost. Prompts and answers are not stored."},
		form: &ui.Form{Values: c.QueryParams()}, grid: requestGrid(list.Rows), csv: u.With("format", "csv", "after", q.After),
	}
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "requests", v.grid)
	}
	if q.After != "" {
		v.paging.First = u.With()
	}
	if list.Next != "" {
		v.paging.Next = u.With("after", list.Next)
	}
	if v.models, v.keys, err = p.filterOptions(c); err != nil {
		return err
	}
	return ui.Render(c, http.StatusOK, requestsPage(v))
}

func (p *pages) filterOptions(c echo.Context) (models, keys []ui.Option, err error) {
	who, ctx := session.Must(c), c.Request().Context()
	all, err := p.Read.Models(ctx, who)
	if err != nil {
		return nil, nil, err
	}
	models = []ui.Option{{Text: "All models"}}
	for _, m := range all {
		models = append(models, ui.Option{Value: m.Name, Text: m.Name})
	}
	list, err := p.Read.Keys(ctx, who)
	if err != nil {
		return nil, nil, err
	}
	keys = []ui.Option{{Text: "All keys"}}
	for _, k := range list {
		keys = append(keys, ui.Option{Value: ids.Format(ids.Key, k.ID), Text: k.Name})
	}
	return models, keys, nil
}

func requestGrid(rows []Request) ui.Grid {
	g := ui.Grid{
		Caption: "Requests, newest first", Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "Model"}, {Name: "Key", Less: true}, {Name: "Ended"}, {Name: "Prompt", Num: true}, {Name: "Cached", Num: true, Less: true}, {Name: "Output", Num: true}, {Name: "First token", Num: true, Less: true}, {Name: "Took", Num: true}, {Name: "Cost", Num: true}},
		Empty: ui.Blank{Icon: "list", Title: "No requests here", Text: "Calls appear within seconds of their end. Send one from the playground, or change the filter.",
			Action: ui.Link{Href: "/playground", Text: "Open the playground"}},
	}
	for _, r := range rows {
		when := ui.At(r.At)
		when.Href = r.href()
		tone, word := endingTag(r.Ending)
		g.Rows = append(g.Rows, ui.Row{
			when, ui.N(modelName(r.Model, r.Simulated), r.Model), ui.T(r.KeyName), ui.N(ui.Tag(tone, word), string(r.Ending)),
			ui.Tok(r.Usage.Prompt()), ui.Tok(r.Usage[usage.Cached]), ui.Tok(r.Usage.Generated()),
			ui.T(ui.FormatLatency(r.FirstTok)), ui.T(ui.FormatLatency(r.Took)), ui.USD(r.Cost),
		})
	}
	return g
}

func (r Request) href() string { return "/requests/" + ids.Format(ids.Request, r.ID) }

// endingTag says how a request ended in the customer's words.
func endingTag(e usage.Ending) (ui.Tone, string) {
	switch e {
	case usage.Complete:
		return ui.Good, "complete"
	case usage.ClientLeft:
		return ui.Quiet, "you stopped it"
	case usage.EngineFailed:
		return ui.Bad, "broke off"
	case usage.FailedUnbilled:
		return ui.Bad, "failed, free"
	case usage.CapReached:
		return ui.Warn, "cap reached"
	case usage.GatewayDied:
		return ui.Warn, "interrupted"
	case usage.Quarantined:
		return ui.Quiet, "set aside, free"
	}
	return ui.Quiet, string(e)
}

// endingText says what the ending means for the bill.
func endingText(e usage.Ending) string {
	switch e {
	case usage.Complete:
		return "The whole answer was handed over. All of its tokens are charged."
	case usage.ClientLeft:
		return "The connection was closed before the end. The prompt and the tokens written until then are charged."
	case usage.EngineFailed:
		return "The engine broke off after the first token. What was delivered is charged."
	case usage.FailedUnbilled:
		return "Nothing was delivered, so nothing is charged."
	case usage.CapReached:
		return "A cap or the balance was used up while the answer ran. What was delivered is charged."
	case usage.GatewayDied:
		return "A gateway stopped in the middle. Charged is the last progress it had written down, never more than was delivered."
	}
	return ""
}

// costLine is one token class of the explanation.
type costLine struct {
	class usage.Class
	count int64
	price money.Pico
	cost  money.Pico
}

// explanation shows how a charge came about, to the pico-dollar, and its one rounding.
type explanation struct {
	lines  []costLine
	exact  money.Pico
	nano   money.Nano
	agrees bool // nano is what was charged
}

// explain repeats the rating. It never decides a charge: where it differs from what was charged, the page says so.
func explain(r RequestDetail) explanation {
	var x explanation
	for _, class := range ui.PricedClasses {
		n := r.Usage[class]
		if n == 0 {
			continue
		}
		cost, ok := money.Cost(n, r.Prices[class])
		if !ok {
			return explanation{}
		}
		x.lines = append(x.lines, costLine{class, n, r.Prices[class], cost})
	}
	exact, ok := r.Prices.Cost(r.Usage)
	if !ok {
		return explanation{}
	}
	x.exact, x.nano = exact, exact.Nano()
	x.agrees = x.nano == r.Cost
	return x
}

func (x explanation) grid() ui.Grid {
	g := ui.Grid{
		Caption: "Cost by token class", Columns: []ui.Column{{Name: "Class"}, {Name: "Tokens", Num: true}, {Name: "Price per 1M", Num: true}, {Name: "Cost", Num: true}},
		Empty: ui.Blank{Title: "No tokens", Text: "This request used nothing that is charged."},
	}
	for _, l := range x.lines {
		price := ui.T(ui.FormatPerMillion(l.price))
		if l.class == usage.Requests {
			price = ui.T(ui.ExactPico(l.price) + " each")
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(ui.ClassName(l.class)), ui.C(l.count), price, ui.T(ui.ExactPico(l.cost))})
	}
	if len(g.Rows) > 0 {
		g.Foot = ui.Row{ui.T("Exact sum"), {}, {}, ui.T(ui.ExactPico(x.exact))}
	}
	return g
}

func (p *pages) request(c echo.Context) error {
	id, err := pathID(c, ids.Request)
	if err != nil {
		return err
	}
	r, err := p.Read.Request(c.Request().Context(), session.Must(c), id)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Request " + shortID(r.ID), Path: "/requests", Up: &ui.Link{Href: "/requests", Text: "Requests"}, Lead: endingText(r.Ending)}
	return ui.Render(c, http.StatusOK, requestPage(page, r, explain(r)))
}

// shortID is the end of an id: enough to tell pages apart.
func shortID(id ids.ID) string {
	s := ids.Format(ids.Request, id)
	return s[len(s)-8:]
}

func callText(r RequestDetail) string {
	how := "whole"
	if r.Streamed {
		how = "streamed"
	}
	if r.Service != usage.Ordinary {
		how += ", " + r.Service.String()
	}
	return r.Dialect + ", " + how + ", HTTP " + strconv.Itoa(r.Status)
}
