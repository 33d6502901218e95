package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/web/session"
	"millrace/web/ui"
)

const unitsTop = Root + "/units"

func unitPath(id ids.ID) string { return unitsTop + "/" + ids.Format(ids.Unit, id) }

func (p *pages) units(c echo.Context) error {
	units, err := p.Read.Units(c.Request().Context())
	if err != nil {
		return err
	}
	g := unitGrid(units)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "units", g)
	}
	page := ui.Page{Title: "Units", Path: unitsTop, Lead: "What serves now. Cache hits and latencies are of the last 5 minutes.", Events: []string{"units", "hosts"}}
	if c.QueryParam("done") == "detached" {
		page.Toast = "Detached. Running answers finish; no new work goes there."
	}
	return ui.Render(c, http.StatusOK, unitsPage(page, g))
}

func unitGrid(units []Unit) ui.Grid {
	g := ui.Grid{
		Caption: "Units", Cards: true,
		Columns: []ui.Column{{Name: "Unit"}, {Name: "Model"}, {Name: "Engine"}, {Name: "State"}, {Name: "Running", Num: true}, {Name: "Waiting", Num: true}, {Name: "KV cache"}, {Name: "Cache hits", Num: true}, {Name: "First token", Num: true}},
		Empty: ui.Blank{Icon: "cpu", Title: "Nothing serves yet", Text: "Join a host, or attach an engine or provider that already runs.",
			Action: ui.Link{Href: unitsTop + "/attach", Text: "Attach an engine"}},
	}
	for _, u := range units {
		g.Rows = append(g.Rows, ui.Row{
			ui.L(unitPath(u.ID), u.Name).WithSub(u.where()), ui.T(u.Model).WithSub(u.Release), ui.N(engineName(u), u.engineText()),
			ui.N(ui.Tag(u.State.tone(), string(u.State)), string(u.State)).WithSub(u.Note), ui.C(u.Running), ui.C(u.Waiting),
			ui.N(ui.Meter(u.KVUsed, 1000, strconv.FormatInt(u.KVUsed/10, 10)+" % used"), strconv.FormatInt(u.KVUsed/10, 10)+" %"),
			ui.T(ui.FormatShare(u.Cached, u.Prompt)), firstToken(u.FirstTok),
		})
	}
	return g
}

func firstToken(q ui.Quantiles) ui.Cell {
	c := ui.T(ui.FormatLatency(q.P50))
	if q.P95 > 0 {
		c = c.WithSub("95\u00a0% " + ui.FormatLatency(q.P95))
	}
	return c
}

func (u Unit) engineText() string {
	if u.Simulated {
		return u.Engine + " (simulated engine)"
	}
	return u.Engine
}

// where a unit runs: its hosts, or that it is attached.
func (u Unit) where() string {
	if u.Attached != "" {
		return "attached"
	}
	return strings.Join(u.Hosts, ", ")
}

func (p *pages) unit(c echo.Context) error {
	u, err := p.findUnit(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Unit " + u.Name, Head: u.Name, Path: unitsTop, Up: &ui.Link{Href: unitsTop, Text: "Units"}, Lead: u.Model, Events: []string{"units"}}
	return ui.Render(c, http.StatusOK, unitPage(page, u))
}

func (p *pages) findUnit(c echo.Context) (Unit, error) {
	id, err := pathID(c, ids.Unit)
	if err != nil {
		return Unit{}, err
	}
	return p.Read.Unit(c.Request().Context(), id)
}

// engines are the families that an attached engine can be of: those that have a driver.
func engines() (out []ui.Option) {
	for _, f := range engine.Families() {
		text := string(f)
		if d, err := engine.Lookup(f); err == nil {
			text = d.Label()
		}
		out = append(out, ui.Option{Value: string(f), Text: text})
	}
	return out
}

func (p *pages) attachForm(c echo.Context) error {
	return p.showAttach(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showAttach(c echo.Context, status int, f *ui.Form) error {
	page := ui.Page{Title: "Attach an engine", Path: unitsTop, Up: &ui.Link{Href: unitsTop, Text: "Units"}, Lead: "An engine or provider that already runs. It needs no agent; its own counts have no independent check."}
	return ui.Render(c, status, attachPage(page, f))
}

func (p *pages) attach(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	a := Attachment{Name: f.Get("name"), URL: strings.TrimRight(f.Get("url"), "/"), Engine: f.Get("engine"), ModelThere: f.Get("there"), Key: f.Get("key")}
	f.Values.Del("key") // a secret is never drawn into a page again
	if a.Name == "" || len(a.Name) > maxName || strings.ContainsAny(a.Name, " \t\r\n") {
		f.Fail("name", "Enter a name without blanks, for example acme/llama-70b.")
	}
	if u, err := url.Parse(a.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		f.Fail("url", "Enter an address like http://10.0.0.5:8000, without a key in it.")
	}
	if !slices.Contains(engine.Families(), engine.Family(a.Engine)) {
		f.Fail("engine", "Choose what answers there.")
	}
	if f.OK() {
		model, err := p.Write.Attach(c.Request().Context(), session.Must(c), a)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, modelPath(model)+"?done=attached")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showAttach(c, http.StatusUnprocessableEntity, f)
}

func (p *pages) confirmDetach(c echo.Context) error {
	u, err := p.findAttached(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Detach " + u.Name, Path: unitsTop, Up: &ui.Link{Href: unitPath(u.ID), Text: u.Name}}
	return ui.Render(c, http.StatusOK, detachPage(page, u))
}

func (p *pages) findAttached(c echo.Context) (Unit, error) {
	u, err := p.findUnit(c)
	if err == nil && u.Attached == "" {
		return Unit{}, fault.New(fault.Conflict, "%s runs on hosts of your own; only attached engines can be detached.", u.Name)
	}
	return u, err
}

func (p *pages) detach(c echo.Context) error {
	u, err := p.findAttached(c)
	if err != nil {
		return err
	}
	if err := p.Write.Detach(c.Request().Context(), session.Must(c), u.ID); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, unitsTop+"?done=detached")
}
