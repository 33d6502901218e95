package console

import (
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

// keyForm is the create page ready to draw.
type keyForm struct {
	page     ui.Page
	form     *ui.Form
	id       string
	projects []ui.Option
	zone     string
}

const maxKeyName = 60 // characters

func (p *pages) keys(c echo.Context) error {
	who := session.Must(c)
	keys, err := p.Read.Keys(c.Request().Context(), who)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "API keys", Path: "/keys", Lead: "Caps and revocation act on every gateway within a second.", Events: []string{"keys", "usage"}}
	if c.QueryParam("done") == "revoked" {
		page.Toast = "Key revoked. It stops working on every gateway within a second."
	}
	g := p.keyGrid(keys)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "api-keys", g)
	}
	return ui.Render(c, http.StatusOK, keysPage(page, g, who.May.Has(session.PermKeys)))
}

func (p *pages) keyGrid(keys []Key) ui.Grid {
	g := ui.Grid{
		Caption: "API keys", Cards: true,
		Columns: []ui.Column{{Name: "Name"}, {Name: "Key", Mono: true}, {Name: "Project"}, {Name: "Last used"}, {Name: "Spend this month"}, {Name: "Status"}, {Name: "Actions", Hide: true}},
		Empty: ui.Blank{Icon: "key-round", Title: "No keys yet", Text: "Your programs sign their requests with an API key. Make one per program, so that each can be capped and revoked alone.",
			Action: ui.Link{Href: "/keys/new", Text: "Create a key"}},
	}
	for _, k := range keys {
		used := ui.T("never")
		if !k.LastUsed.IsZero() {
			used = ui.Ago(k.LastUsed).WithSub(k.LastModel)
		}
		tone, state := k.state(p.Clock.Now())
		row := ui.Row{
			ui.L(k.href(), k.Name), ui.T(k.shown()), ui.T(k.Project), used,
			ui.N(keySpend(k), k.Used.String()), ui.N(ui.Tag(tone, state), state), {},
		}
		if k.usable(p.Clock.Now()) {
			row[6] = ui.N(keyActions(k), "")
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func (k Key) href() string  { return "/keys/" + ids.Format(ids.Key, k.ID) }
func (k Key) shown() string { return k.Prefix + "…" + k.Last4 }

func (k Key) usable(now time.Time) bool {
	return k.Revoked.IsZero() && (k.Expires.IsZero() || k.Expires.After(now))
}

func (k Key) state(now time.Time) (ui.Tone, string) {
	switch {
	case !k.Revoked.IsZero():
		return ui.Quiet, "revoked"
	case !k.usable(now):
		return ui.Quiet, "expired"
	case k.Cap != nil && k.Used >= *k.Cap:
		return ui.Bad, "cap reached"
	case k.Cap != nil && ui.Percent(int64(k.Used), int64(*k.Cap)) >= 80:
		return ui.Warn, "near cap"
	}
	return ui.Good, "active"
}

func (k Key) capText() string { return ui.FormatMoney(k.Used) + " of " + ui.FormatMoney(*k.Cap) }

func (p *pages) key(c echo.Context) error {
	who := session.Must(c)
	id, err := pathID(c, ids.Key)
	if err != nil {
		return err
	}
	k, err := p.Read.Key(c.Request().Context(), who, id)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Key " + k.Name, Head: k.Name, Path: "/keys", Up: &ui.Link{Href: "/keys", Text: "API keys"}, Lead: k.shown()}
	return ui.Render(c, http.StatusOK, keyPage(page, k, p.Clock.Now(), who))
}

func (p *pages) newKey(c echo.Context) error {
	return p.showKeyForm(c, http.StatusOK, &ui.Form{}, ids.New())
}

func (p *pages) showKeyForm(c echo.Context, status int, f *ui.Form, id ids.ID) error {
	who := session.Must(c)
	if err := who.Allow(session.PermKeys); err != nil {
		return err
	}
	projects, err := p.Read.Projects(c.Request().Context(), who)
	if err != nil {
		return err
	}
	v := keyForm{
		form: f, id: id.String(), zone: ui.ZoneName(who.Location(), p.Clock.Now()),
		page: ui.Page{Title: "Create an API key", Path: "/keys", Up: &ui.Link{Href: "/keys", Text: "API keys"}, Lead: "The key is shown once, right after this."},
	}
	for _, x := range projects {
		v.projects = append(v.projects, ui.Option{Value: ids.Format(ids.Project, x.ID), Text: x.Name})
	}
	return ui.Render(c, status, keyFormPage(v))
}

// createKey shows the secret in the answer itself: it is never in an address, a cookie or a cache.
func (p *pages) createKey(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	ui.NoStore(c)
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	k := readKey(f, who.Location(), p.Clock.Now())
	if f.OK() {
		if err := who.Allow(session.PermKeys); err != nil {
			return err
		}
		secret, err := p.Write.CreateKey(ctx, who, k)
		if err == nil {
			return p.showSecret(c, k, secret)
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showKeyForm(c, http.StatusUnprocessableEntity, f, ids.New())
}

func readKey(f *ui.Form, zone *time.Location, now time.Time) NewKey {
	k := NewKey{Name: f.Get("name")}
	if n := utf8.RuneCountInString(k.Name); n == 0 || n > maxKeyName {
		f.Fail("name", fmt.Sprintf("Give the key a name of at most %d characters.", maxKeyName))
	}
	var err error
	if k.ID, err = ids.Parse(ids.Key, f.Get("id")); err != nil {
		f.Fail("", "This form was incomplete. Please send it again.")
	}
	if k.Project, err = ids.Parse(ids.Project, f.Get("project")); err != nil {
		f.Fail("project", "Choose a project.")
	}
	k.Cap = readCap(f)
	if d := f.Get("expires"); d != "" {
		day, err := time.ParseInLocation(report.DateLayout, d, zone)
		k.Expires = day.AddDate(0, 0, 1) // usable to the end of that day
		if err != nil || !k.Expires.After(now) {
			f.Fail("expires", "Choose a day that is not in the past, or leave it empty.")
		}
	}
	return k
}

// maxCap keeps typing errors out: one million dollars a month.
const maxCap = 1_000_000 * money.NanoPerUSD

// readCap reads the optional monthly cap; nil is none.
func readCap(f *ui.Form) *money.Nano {
	text := f.Get("cap")
	if text == "" {
		return nil
	}
	n, err := money.ParseUSD(text)
	if err != nil || n <= 0 || n > maxCap {
		f.Fail("cap", "Enter dollars like 50 or 12.50, at most 1000000, or leave it empty for no cap.")
		return nil
	}
	return &n
}

func (p *pages) showSecret(c echo.Context, k NewKey, secret string) error {
	models, err := p.Read.Models(c.Request().Context(), session.Must(c))
	if err != nil {
		return err
	}
	model := "MODEL"
	if i := slices.IndexFunc(models, func(m Model) bool { return m.Available }); i >= 0 {
		model = models[i].Name
	}
	page := ui.Page{Title: "Your new key", Head: "Your new key: " + k.Name, Path: "/keys", Up: &ui.Link{Href: "/keys", Text: "API keys"}, Lead: "Shown once. We keep only a fingerprint of it and cannot show it again."}
	ask := Ask{Model: model, Message: sampleMessage}
	curl, err := curlSample(p.PublicURL, secret, ask)
	if err != nil {
		return err
	}
	return ui.Render(c, http.StatusOK, secretPage(page, secret, curl, pythonSample(p.PublicURL, secret, ask)))
}

func (p *pages) confirmRevoke(c echo.Context) error {
	return p.showRevoke(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showRevoke(c echo.Context, status int, f *ui.Form) error {
	who := session.Must(c)
	if err := who.Allow(session.PermKeys); err != nil {
		return err
	}
	id, err := pathID(c, ids.Key)
	if err != nil {
		return err
	}
	k, err := p.Read.Key(c.Request().Context(), who, id)
	if err != nil {
		return err
	}
	if !k.Revoked.IsZero() {
		return fault.New(fault.Conflict, "The key %s is revoked already.", k.Name)
	}
	page := ui.Page{Title: "Revoke " + k.Name, Path: "/keys", Up: &ui.Link{Href: "/keys", Text: "API keys"}}
	return ui.Render(c, status, revokePage(page, k, f))
}

func (p *pages) revokeKey(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	if err := who.Allow(session.PermKeys); err != nil {
		return err
	}
	id, err := pathID(c, ids.Key)
	if err != nil {
		return err
	}
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	k, err := p.Read.Key(ctx, who, id)
	if err != nil {
		return err
	}
	if f.Get("confirm") != k.Name {
		f.Fail("confirm", "Type the key's name exactly: "+k.Name)
		return p.showRevoke(c, http.StatusUnprocessableEntity, f)
	}
	if err := p.Write.RevokeKey(ctx, who, id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/keys?done=revoked")
}
