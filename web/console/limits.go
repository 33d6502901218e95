package console

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/session"
	"millrace/web/ui"
)

// Rule is a cap of any period, with where its running period stands.
type Rule struct {
	ID          ids.ID
	Scope       Scope
	ScopeID     ids.ID
	Name        string // of the organization, project or key
	Period      string // day, week, month, total
	Amount      money.Nano
	AlertOnly   bool
	Used        money.Nano
	Resets      time.Time // zero = never
	Raised      money.Nano
	RaisedUntil time.Time // zero = not raised
}

// Alert is a threshold that was passed.
type Alert struct {
	At      time.Time
	Name    string
	Period  string
	Percent int
	Spent   money.Nano
	Cap     money.Nano
	Told    bool // mail and webhooks are on their way
}

// Raise allows more than a cap until a moment.
type Raise struct {
	Rule  ids.ID
	To    money.Nano
	Until time.Time
}

// limitsView is the limits page ready to draw.
type limitsView struct {
	Limits
	page    ui.Page
	canCaps bool
	rules   ui.Grid
	alerts  ui.Grid
}

func (p *pages) registerLimits(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	g.GET("/limits", in(p.limits))
	g.GET("/limits/low-balance", in(p.lowForm))
	g.POST("/limits/low-balance", in(p.setLow))
	g.GET("/limits/:scope/:id", in(p.editCap))
	g.POST("/limits/:scope/:id", in(p.setCap))
	g.GET("/limits/:scope/:id/raise", in(p.raiseForm))
	g.POST("/limits/:scope/:id/raise", in(p.raiseCap))
}

func (p *pages) limits(c echo.Context) error {
	who := session.Must(c)
	l, err := p.Read.Limits(c.Request().Context(), who)
	if err != nil {
		return err
	}
	v := limitsView{Limits: l, canCaps: who.May.Has(session.PermCaps)}
	v.page = ui.Page{Title: "Limits and caps", Path: "/limits",
		Lead: "A hard cap stops usage at 100 %; one that only alerts never does. Periods begin at midnight in " + ui.ZoneName(who.Location(), p.Clock.Now()) + "."}
	switch c.QueryParam("done") {
	case "cap":
		v.page.Toast = "Saved. The cap acts on every gateway within a second."
	case "low":
		v.page.Toast = "Saved. People and webhooks are told when the balance falls below it."
	case "off":
		v.page.Toast = "Saved. Nobody is told any more."
	case "raised":
		v.page.Toast = "Raised. The cap holds again by itself at the moment you chose."
	}
	v.rules = rulesGrid(l.Rules, v.canCaps, p.Clock.Now())
	v.alerts = alertsGrid(l.Alerts)
	return ui.Render(c, http.StatusOK, limitsPage(v))
}

// periods says a period in words.
var periods = map[string]string{"day": "per day", "week": "per week", "month": "per month", "total": "in all"}

func rulePath(r Rule) string {
	return "/limits/" + string(r.Scope) + "/" + ids.Format(scopePrefix[r.Scope], r.ScopeID)
}

var scopePrefix = map[Scope]string{ScopeOrg: ids.Org, ScopeProject: ids.Project, ScopeKey: ids.Key}

func rulesGrid(rules []Rule, can bool, now time.Time) ui.Grid {
	g := ui.Grid{Caption: "Caps", Cards: true,
		Columns: []ui.Column{{Name: "Of"}, {Name: "Cap"}, {Name: "At 100 %"}, {Name: "Spent in this period"}, {Name: "Resets"}},
		Empty:   ui.Blank{Icon: "gauge", Title: "No caps yet", Text: "Without a cap usage stops only when the balance is used up. Set one for the organization, a project or a key below."}}
	if can {
		g.Columns = append(g.Columns, ui.Column{Name: "Actions", Hide: true})
	}
	for _, r := range rules {
		word, tone, allowed := "stops", ui.Warn, r.Amount
		if r.AlertOnly {
			word, tone = "only alerts", ui.Quiet
		}
		limit := ui.T(ui.FormatMoney(r.Amount) + " " + periods[r.Period])
		if now.Before(r.RaisedUntil) {
			allowed = r.Raised
			limit = limit.WithSub("raised to " + ui.FormatMoney(r.Raised) + " until " + r.RaisedUntil.UTC().Format("2 Jan 15:04 UTC"))
		}
		meter := ui.Meter(int64(r.Used), int64(allowed), ui.FormatMoney(r.Used)+" of "+ui.FormatMoney(allowed))
		resets := ui.T("never")
		if !r.Resets.IsZero() {
			resets = ui.At(r.Resets)
		}
		row := ui.Row{ui.T(r.Name).WithSub(scopeWord(r.Scope)), limit, ui.N(ui.Tag(tone, word), word), ui.N(meter, r.Used.String()), resets}
		if can {
			row = append(row, ui.N(ruleActions(r), ""))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func scopeWord(s Scope) string {
	return map[Scope]string{ScopeOrg: "organization", ScopeProject: "project", ScopeKey: "API key"}[s]
}

func alertsGrid(list []Alert) ui.Grid {
	g := ui.Grid{Caption: "Alerts, newest first", Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "Of"}, {Name: "Passed"}, {Name: "Spent", Num: true}, {Name: "Cap", Num: true}, {Name: "Told"}},
		Empty:   ui.Blank{Icon: "mail", Title: "No alerts yet", Text: "At 50, 80 and 100 % of a cap owners, admins and billing people get a mail, and your webhooks an event; once per period and threshold."}}
	for _, a := range list {
		told := "yes"
		if !a.Told {
			told = "in a moment"
		}
		g.Rows = append(g.Rows, ui.Row{ui.At(a.At), ui.T(a.Name).WithSub(periods[a.Period]), ui.T(formatPercent(a.Percent)), ui.USD(a.Spent), ui.USD(a.Cap), ui.T(told)})
	}
	return g
}

func formatPercent(n int) string { return ui.FormatCount(int64(n)) + "\u00a0%" }

// capForm is the page of one cap.
type capForm struct {
	page   ui.Page
	form   *ui.Form
	action string
	name   string
	rule   *Rule // as it is; nil = none
	period string
	zone   string
}

func (p *pages) editCap(c echo.Context) error { return p.showCap(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showCap(c echo.Context, status int, f *ui.Form) error {
	who := session.Must(c)
	if err := who.Allow(session.PermCaps); err != nil {
		return err
	}
	v, _, err := p.findCap(c, f.Get("period"))
	if err != nil {
		return err
	}
	v.form, v.action, v.zone = f, c.Request().URL.Path, ui.ZoneName(who.Location(), p.Clock.Now())
	v.page = ui.Page{Title: "Cap of " + v.name, Path: "/limits", Up: &ui.Link{Href: "/limits", Text: "Limits and caps"}}
	return ui.Render(c, status, capPage(v))
}

// findCap finds the scope named in the path among those the organization has, and its cap of a period ("" = the query's).
func (p *pages) findCap(c echo.Context, period string) (capForm, CapChange, error) {
	who := session.Must(c)
	missing := fault.New(fault.NotFound, "There is nothing with this id.")
	l, err := p.Read.Limits(c.Request().Context(), who)
	if err != nil {
		return capForm{}, CapChange{}, err
	}
	if period == "" {
		period = c.QueryParam("period")
	}
	if periods[period] == "" {
		period = "month"
	}
	found := func(s Scope, id ids.ID, name string) (capForm, CapChange, error) {
		v := capForm{name: name, period: period}
		for _, r := range l.Rules {
			if r.Scope == s && r.ScopeID == id && r.Period == period {
				v.rule = &r
			}
		}
		return v, CapChange{Scope: s, ID: id, Period: period}, nil
	}
	switch s := Scope(c.Param("scope")); s {
	case ScopeOrg:
		if c.Param("id") == orgPath(l) {
			return found(s, l.OrgID, who.OrgName)
		}
	case ScopeProject:
		for _, x := range l.Projects {
			if ids.Format(ids.Project, x.ID) == c.Param("id") {
				return found(s, x.ID, x.Name)
			}
		}
	case ScopeKey:
		for _, x := range l.Keys {
			if ids.Format(ids.Key, x.ID) == c.Param("id") {
				return found(s, x.ID, x.Name)
			}
		}
	}
	return capForm{}, CapChange{}, missing
}

func (p *pages) setCap(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermCaps); err != nil {
		return err
	}
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	_, change, err := p.findCap(c, f.Get("period"))
	if err != nil {
		return err
	}
	change.Cap, change.AlertOnly = readCap(f), f.Get("kind") == "alert"
	if f.OK() {
		err := p.Write.SetCap(c.Request().Context(), who, change)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, "/limits?done=cap")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showCap(c, http.StatusUnprocessableEntity, f)
}

func (v capForm) current() string {
	if v.rule == nil {
		return ""
	}
	return v.rule.Amount.String()
}

func (v capForm) kind() string {
	if v.rule != nil && v.rule.AlertOnly {
		return "alert"
	}
	return "hard"
}

func limitText(n int64, unit string) string {
	if n <= 0 {
		return "no limit"
	}
	return ui.FormatCount(n) + " " + unit
}

func orgPath(l Limits) string { return ids.Format(ids.Org, l.OrgID) }

// Lengths a raise can be chosen by.
var raises = []struct {
	value, text string
	lasts       time.Duration
}{{"1h", "an hour", time.Hour}, {"24h", "a day", 24 * time.Hour}, {"72h", "three days", 72 * time.Hour}, {"168h", "a week", 168 * time.Hour}, {"720h", "30 days", 720 * time.Hour}}

func (p *pages) raiseForm(c echo.Context) error { return p.showRaise(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showRaise(c echo.Context, status int, f *ui.Form) error {
	if err := session.Must(c).Allow(session.PermCaps); err != nil {
		return err
	}
	v, _, err := p.findCap(c, f.Get("period"))
	if err != nil {
		return err
	}
	if v.rule == nil || v.rule.AlertOnly {
		return fault.New(fault.NotFound, "There is no hard cap to raise here.")
	}
	v.form, v.action = f, c.Request().URL.Path
	v.page = ui.Page{Title: "Raise the cap of " + v.name + " for a while", Path: "/limits", Up: &ui.Link{Href: "/limits", Text: "Limits and caps"}}
	return ui.Render(c, status, raisePage(v))
}

func (p *pages) raiseCap(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermCaps); err != nil {
		return err
	}
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	v, _, err := p.findCap(c, f.Get("period"))
	if err != nil {
		return err
	}
	if v.rule == nil {
		return fault.New(fault.NotFound, "There is no cap to raise here.")
	}
	r := Raise{Rule: v.rule.ID}
	if r.To, err = money.ParseUSD(f.Get("to")); err != nil || r.To <= v.rule.Amount || r.To > maxCap {
		f.Fail("to", "Enter dollars above the cap of "+ui.FormatMoney(v.rule.Amount)+".")
	}
	for _, x := range raises {
		if x.value == f.Get("lasts") {
			r.Until = p.Clock.Now().Add(x.lasts)
		}
	}
	if r.Until.IsZero() {
		f.Fail("lasts", "Choose how long.")
	}
	if f.OK() {
		err := p.Write.RaiseCap(c.Request().Context(), who, r)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, "/limits?done=raised")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showRaise(c, http.StatusUnprocessableEntity, f)
}

func raiseOptions() (out []ui.Option) {
	for _, x := range raises {
		out = append(out, ui.Option{Value: x.value, Text: x.text})
	}
	return out
}
