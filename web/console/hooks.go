package console

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/session"
	"millrace/web/ui"
)

// Webhooks are an organization's programs that want to know. Refused input is a fault.Invalid or fault.Conflict with the
// Param url.
type Webhooks interface {
	Hooks(ctx context.Context, who session.Viewer) ([]Hook, error)
	Deliveries(ctx context.Context, who session.Viewer) ([]Delivery, error) // newest first, at most 100
	// AddHook gives the secret, for the only time.
	AddHook(ctx context.Context, who session.Viewer, url string) (secret string, err error)
	RemoveHook(ctx context.Context, who session.Viewer, id ids.ID) error
	TestHook(ctx context.Context, who session.Viewer, id ids.ID) error
}

// Hook is a webhook.
type Hook struct {
	ID      ids.ID
	URL     string
	Problem string // why nothing is delivered there; "" = it is tried
	Created time.Time
	Waiting int64
	Failed  int64
}

// Delivery is a line of the delivery log.
type Delivery struct {
	At       time.Time
	URL      string
	Kind     string
	Event    string // its id, as the receiver gets it
	State    string // waiting, delivered, failed
	Attempts int
	Status   int // of the last answer; 0 = none
	Problem  string
	Next     time.Time
}

const (
	hooksTop   = "/limits/webhooks"
	hookPrefix = "hook"
	maxHookURL = 500 // bytes
)

func hookPath(h Hook) string { return hooksTop + "/" + ids.Format(hookPrefix, h.ID) }

func (p *pages) registerHooks(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	may := func(h echo.HandlerFunc) echo.HandlerFunc {
		return in(func(c echo.Context) error {
			if err := session.Must(c).Allow(session.PermCaps); err != nil {
				return err
			}
			return h(c)
		})
	}
	g.GET(hooksTop, may(p.hooks))
	g.POST(hooksTop, may(p.addHook))
	g.POST(hooksTop+"/:id/test", may(p.testHook))
	g.GET(hooksTop+"/:id/remove", may(p.confirmHook))
	g.POST(hooksTop+"/:id/remove", may(p.removeHook))
}

func (p *pages) hooks(c echo.Context) error { return p.showHooks(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showHooks(c echo.Context, status int, f *ui.Form) error {
	who, ctx := session.Must(c), c.Request().Context()
	list, err := p.Hooks.Hooks(ctx, who)
	if err != nil {
		return err
	}
	log, err := p.Hooks.Deliveries(ctx, who)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Webhooks", Path: "/limits", Up: &ui.Link{Href: "/limits", Text: "Limits and caps"},
		Lead: "Alerts of caps and warnings of ending credit, sent to your own programs as signed requests."}
	switch c.QueryParam("done") {
	case "test":
		page.Toast = "A test event is on its way. The log below shows how it went; reload in a moment."
	case "removed":
		page.Toast = "Removed. Nothing is sent to it any more."
	}
	return ui.Render(c, status, hooksPage(page, f, hooksGrid(list), deliveryGrid(log)))
}

func hooksGrid(list []Hook) ui.Grid {
	g := ui.Grid{Caption: "Webhooks", Cards: true, Columns: []ui.Column{{Name: "Address", Wrap: true}, {Name: "Added"}, {Name: "Waiting", Num: true}, {Name: "Failed", Num: true}, {Name: "Actions", Hide: true}},
		Empty: ui.Blank{Icon: "mail", Title: "No webhooks yet", Text: "Add the address of a program of yours below. Its secret is shown once."}}
	for _, h := range list {
		address := ui.T(h.URL)
		if h.Problem != "" {
			address = address.WithSub("Nothing is delivered there. " + h.Problem)
		}
		g.Rows = append(g.Rows, ui.Row{address, ui.Ago(h.Created), ui.C(h.Waiting), ui.C(h.Failed), ui.N(hookActions(h), "")})
	}
	return g
}

func deliveryGrid(list []Delivery) ui.Grid {
	g := ui.Grid{Caption: "Deliveries, newest first", Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "Event"}, {Name: "To", Wrap: true, Less: true}, {Name: "Outcome", Wrap: true}, {Name: "Attempts", Num: true}, {Name: "Next"}},
		Empty:   ui.Blank{Icon: "list", Title: "Nothing sent yet", Text: "Every attempt of the last 30 days is listed here."}}
	for _, d := range list {
		tone := map[string]ui.Tone{"delivered": ui.Good, "waiting": ui.Warn, "failed": ui.Bad}[d.State]
		outcome := ui.N(ui.Tag(tone, d.State), d.State)
		switch {
		case d.Problem != "":
			outcome = outcome.WithSub(d.Problem)
		case d.Status != 0:
			outcome = outcome.WithSub("answered " + strconv.Itoa(d.Status))
		}
		next := ui.T("–")
		if d.State == "waiting" {
			next = ui.At(d.Next)
		}
		g.Rows = append(g.Rows, ui.Row{ui.At(d.At), ui.T(d.Kind).WithSub(d.Event), ui.T(d.URL), outcome, ui.C(int64(d.Attempts)), next})
	}
	return g
}

func (p *pages) addHook(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	secret, err := p.Hooks.AddHook(c.Request().Context(), session.Must(c), f.Get("url"))
	if err != nil {
		if !f.Absorb(err) {
			return err
		}
		return p.showHooks(c, http.StatusUnprocessableEntity, f)
	}
	ui.NoStore(c)
	page := ui.Page{Title: "Webhook added", Path: "/limits", Up: &ui.Link{Href: hooksTop, Text: "Webhooks"}}
	return ui.Render(c, http.StatusOK, hookSecretPage(page, secret))
}

func (p *pages) findHook(c echo.Context) (Hook, error) {
	id, err := pathID(c, hookPrefix)
	if err != nil {
		return Hook{}, err
	}
	list, err := p.Hooks.Hooks(c.Request().Context(), session.Must(c))
	if err != nil {
		return Hook{}, err
	}
	for _, h := range list {
		if h.ID == id {
			return h, nil
		}
	}
	return Hook{}, fault.New(fault.NotFound, "There is nothing with this id.")
}

func (p *pages) testHook(c echo.Context) error {
	h, err := p.findHook(c)
	if err != nil {
		return err
	}
	if err := p.Hooks.TestHook(c.Request().Context(), session.Must(c), h.ID); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, hooksTop+"?done=test")
}

func (p *pages) confirmHook(c echo.Context) error {
	h, err := p.findHook(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Remove this webhook", Path: "/limits", Up: &ui.Link{Href: hooksTop, Text: "Webhooks"}}
	return ui.Render(c, http.StatusOK, removeHookPage(page, h))
}

func (p *pages) removeHook(c echo.Context) error {
	h, err := p.findHook(c)
	if err != nil {
		return err
	}
	if err := p.Hooks.RemoveHook(c.Request().Context(), session.Must(c), h.ID); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, hooksTop+"?done=removed")
}
