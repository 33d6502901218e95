package capacity

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/serving/fleet"
	"millrace/serving/plan"
	"millrace/web/session"
	"millrace/web/ui"
)

// host finds one host of the overview.
func (p *pages) host(c echo.Context) (fleet.HostView, []fleet.Window, error) {
	id, err := pathID(c, "id", ids.Host)
	if err != nil {
		return fleet.HostView{}, nil, err
	}
	o, err := p.Overview(c.Request().Context())
	if err != nil {
		return fleet.HostView{}, nil, err
	}
	for _, h := range o.Hosts {
		if h.ID == id {
			var own []fleet.Window
			for _, w := range o.Windows {
				if w.Host == id {
					own = append(own, w)
				}
			}
			return h, own, nil
		}
	}
	return fleet.HostView{}, nil, fault.New(fault.NotFound, "There is no such host.").WithCode("host_not_found")
}

func hostPage(title string, h *fleet.HostView) ui.Page {
	return ui.Page{Title: title, Path: Root, Up: &ui.Link{Href: hostPath(h.ID), Text: h.Name}}
}

func (p *pages) serviceForm(c echo.Context) error {
	return p.showService(c, http.StatusOK, &ui.Form{})
}

// showService states what it would mean to take the host away, before anybody can do it.
func (p *pages) showService(c echo.Context, status int, f *ui.Form) error {
	h, _, err := p.host(c)
	if err != nil {
		return err
	}
	then, err := p.Consequence(c.Request().Context(), h.ID)
	if err != nil {
		return err
	}
	title := "Take " + h.Name + " out of service"
	if h.Cordoned {
		title = "Service of " + h.Name
	}
	return ui.Render(c, status, servicePage(hostPage(title, &h), f, h, then, affectedGrid(then.Units), moveList(then.Moves), unmetGrid(then.Unmet)))
}

// consequence is it in two sentences.
func consequence(then *fleet.Consequence) string {
	return ui.Plural(int64(then.GPUs), "GPU", "GPUs") + " of it work for " + ui.Plural(int64(len(then.Units)), "unit", "units") + ". Elsewhere " +
		ui.Plural(int64(then.Free), "GPU is", "GPUs are") + " free."
}

func affectedGrid(units []fleet.Affected) ui.Grid {
	g := ui.Grid{Caption: "Units with something on it", Cards: true, Columns: []ui.Column{{Name: "Unit"}, {Name: "Model"}, {Name: "State"}, {Name: "Consequence", Wrap: true}},
		Empty: ui.Blank{Icon: "check", Title: "Nothing runs there", Text: "No unit has anything on this host."}}
	for _, u := range units {
		then := "its model goes on with other units"
		if u.Last {
			then = "no other unit of its model serves: it stays until another does"
		}
		g.Rows = append(g.Rows, ui.Row{ui.L(UnitPath(u.ID), u.Name), ui.T(u.Model), ui.N(ui.Tag(stateTone(u.State), u.State), u.State), ui.T(then)})
	}
	return g
}

func moveList(moves []plan.Move) ui.Grid {
	g := ui.Grid{Caption: "What a plan without it would move", Cards: true, Columns: []ui.Column{{Name: "Move"}, {Name: "Why", Wrap: true}}}
	for _, m := range moves {
		if m.Kind == plan.MoveKeep {
			continue
		}
		w := moveWords[m.Kind]
		word := w.sign + " " + w.word
		g.Rows = append(g.Rows, ui.Row{ui.N(ui.Tag(w.tone, word), m.Kind), ui.T(m.Text)})
	}
	return g
}

func (p *pages) service(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	id, err := pathID(c, "id", ids.Host)
	if err != nil {
		return err
	}
	ctx, who := c.Request().Context(), session.Must(c)
	switch f.Get("what") {
	case "cordon":
		err = p.Cordon(ctx, who, id, f.Get("reason"))
	case "drain":
		err = p.Drain(ctx, who, id, f.Get("reason"))
	case "uncordon":
		err = p.Uncordon(ctx, who, id)
	default:
		err = fault.New(fault.Invalid, "Choose what to do.").WithParam("what")
	}
	if err == nil {
		return c.Redirect(http.StatusSeeOther, hostPath(id))
	}
	if !f.Absorb(err) {
		return err
	}
	return p.showService(c, http.StatusUnprocessableEntity, f)
}

func (p *pages) factsForm(c echo.Context) error { return p.showFacts(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showFacts(c echo.Context, status int, f *ui.Form) error {
	h, _, err := p.host(c)
	if err != nil {
		return err
	}
	return ui.Render(c, status, factsPage(hostPage("Where "+h.Name+" is", &h), f, h))
}

func (p *pages) setFacts(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	id, err := pathID(c, "id", ids.Host)
	if err != nil {
		return err
	}
	facts := fleet.Facts{Provider: f.Get("provider"), Region: f.Get("region"), Network: f.Get("network"), Failure: f.Get("failure"), Kind: f.Get("kind")}
	price, err := money.ParseUSD(f.Get("price"))
	if err != nil {
		f.Fail("price", "Give dollars, such as 2.40.")
	}
	facts.GPUHour = int64(price)
	if f.OK() {
		err := p.SetFacts(c.Request().Context(), session.Must(c), id, facts)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, hostPath(id))
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showFacts(c, http.StatusUnprocessableEntity, f)
}

func (p *pages) windowForm(c echo.Context) error { return p.showWindows(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showWindows(c echo.Context, status int, f *ui.Form) error {
	h, windows, err := p.host(c)
	if err != nil {
		return err
	}
	g := ui.Grid{Caption: "Maintenance ahead", Cards: true, Columns: []ui.Column{{Name: "From"}, {Name: "To"}, {Name: "Reason", Wrap: true}, {Name: "By"}, {Name: "Actions", Hide: true}},
		Empty: ui.Blank{Icon: "list", Title: "No maintenance ahead", Text: "An hour before a window begins, what runs on the host moves away; after it, the host is used again."}}
	for _, w := range windows {
		g.Rows = append(g.Rows, ui.Row{ui.At(w.Starts), ui.At(w.Ends), ui.T(w.Reason), ui.T(w.CreatedBy), ui.N(cancelButton(w), "")})
	}
	return ui.Render(c, status, windowsPage(hostPage("Maintenance of "+h.Name, &h), f, h, g))
}

// windowTime is how browsers send a moment; it is UTC, as the page says.
const windowTime = "2006-01-02T15:04"

func (p *pages) addWindow(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	w := fleet.Window{Reason: f.Get("reason")}
	if w.Host, err = pathID(c, "id", ids.Host); err != nil {
		return err
	}
	if w.Starts, err = time.Parse(windowTime, f.Get("starts_at")); err != nil {
		f.Fail("starts_at", "Give a day and a time.")
	}
	if w.Ends, err = time.Parse(windowTime, f.Get("ends_at")); err != nil {
		f.Fail("ends_at", "Give a day and a time.")
	}
	if f.OK() {
		err := p.AddWindow(c.Request().Context(), session.Must(c), w)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, ActPath(w.Host, "maintenance"))
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showWindows(c, http.StatusUnprocessableEntity, f)
}

func (p *pages) cancelWindow(c echo.Context) error {
	host, err := pathID(c, "id", ids.Host)
	if err != nil {
		return err
	}
	window, err := pathID(c, "window", ids.Window)
	if err != nil {
		return err
	}
	if err := p.CancelWindow(c.Request().Context(), session.Must(c), host, window); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, ActPath(host, "maintenance"))
}
