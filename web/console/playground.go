package console

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/web/session"
	"millrace/web/ui"
)

// playView is the playground ready to draw.
type playView struct {
	page    ui.Page
	form    *ui.Form
	models  []ui.Option
	answer  *Answer // of a whole call without JavaScript; nil otherwise
	failed  string  // why that call failed
	curl    string
	python  string
	canPlay bool
}

const (
	playgroundPath  = "/v1/chat/completions" // on the same origin: the public endpoint itself
	defaultMaxOut   = 512                    // tokens asked for unless the person says otherwise
	maxPlaygroundIn = 100_000                // characters of a message
	maxTemperature  = 2
	keyPlaceholder  = "YOUR_KEY"
)

func (p *pages) playground(c echo.Context) error {
	return p.showPlayground(c, http.StatusOK, playView{form: &ui.Form{Values: c.QueryParams()}})
}

func (p *pages) showPlayground(c echo.Context, status int, v playView) error {
	who := session.Must(c)
	models, err := p.Read.Models(c.Request().Context(), who)
	if err != nil {
		return err
	}
	for _, m := range models {
		if m.Available {
			v.models = append(v.models, modelOption(m))
		}
	}
	v.canPlay = who.May.Has(session.PermKeys)
	v.page = ui.Page{Title: "Playground", Path: "/playground", Lead: "Real requests through the public endpoint, billed like any other.", Parts: true}
	if err := v.sample(p.PublicURL); err != nil {
		return err
	}
	return ui.Render(c, status, playPage(v))
}

// sample writes the form's question as curl and Python.
func (v *playView) sample(base string) (err error) {
	ask := readAsk(&ui.Form{Values: v.form.Values}) // what is wrong is said elsewhere
	if ask.Model == "" && len(v.models) > 0 {
		ask.Model = v.models[0].Value
	}
	if ask.Message == "" {
		ask.Message = sampleMessage
	}
	v.python = pythonSample(base, keyPlaceholder, ask)
	v.curl, err = curlSample(base, keyPlaceholder, ask)
	return err
}

// playSamples is the part of the page that follows what is typed. It is asked by POST: messages do not belong into
// addresses, which end up in logs.
func (p *pages) playSamples(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	v := playView{form: f}
	if err := v.sample(p.PublicURL); err != nil {
		return err
	}
	return ui.Render(c, http.StatusOK, playSamples(v))
}

// modelOption carries the prices, so that the page can say what an answer costs as soon as its usage is known.
func modelOption(m Model) ui.Option {
	o := ui.Option{Value: m.Name, Text: m.Name, Data: templ.Attributes{}}
	if m.Simulated {
		o.Text += " (simulated engine)"
	}
	for _, c := range ui.PricedClasses {
		o.Data["data-"+c.String()] = strconv.FormatInt(int64(m.Prices[c]), 10)
	}
	return o
}

// playKey gives the page's script a short-lived key. It is in the answer's body only.
func (p *pages) playKey(c echo.Context) error {
	ui.NoStore(c)
	who := session.Must(c)
	if err := who.Allow(session.PermKeys); err != nil {
		return err
	}
	secret, expires, err := p.Write.PlaygroundKey(c.Request().Context(), who)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]string{"key": secret, "expires": expires.UTC().Format(time.RFC3339)})
}

// playWhole is the playground without JavaScript: the server makes the same call to the same public endpoint.
func (p *pages) playWhole(c echo.Context) error {
	ui.NoStore(c)
	who, ctx := session.Must(c), c.Request().Context()
	if err := who.Allow(session.PermKeys); err != nil {
		return err
	}
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	ask := readAsk(f)
	if !f.OK() {
		return p.showPlayground(c, http.StatusUnprocessableEntity, playView{form: f})
	}
	secret, _, err := p.Write.PlaygroundKey(ctx, who)
	if err != nil {
		return err
	}
	v := playView{form: f}
	v.answer, err = p.ask(ctx, secret, ask)
	if err != nil {
		if fault.Of(err).Kind == fault.Internal {
			return err
		}
		v.failed = fault.Of(err).Message
		return p.showPlayground(c, http.StatusOK, v)
	}
	if err := p.priceAnswer(c, ask.Model, v.answer); err != nil {
		return err
	}
	return p.showPlayground(c, http.StatusOK, v)
}

func readAsk(f *ui.Form) Ask {
	a := Ask{Model: f.Get("model"), System: f.Get("system"), Message: f.Get("message"), MaxTokens: defaultMaxOut}
	if a.Model == "" {
		f.Fail("model", "Choose a model.")
	}
	if a.Message == "" || len(a.Message) > maxPlaygroundIn || len(a.System) > maxPlaygroundIn {
		f.Fail("message", "Write a message of at most 100,000 characters.")
	}
	if s := f.Get("max_tokens"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 || n > usage.MaxTokens {
			f.Fail("max_tokens", "Enter a whole number from 1 on.")
		}
		a.MaxTokens = n
	}
	if s := f.Get("temperature"); s != "" {
		t, err := strconv.ParseFloat(s, 64)
		if err != nil || t < 0 || t > maxTemperature {
			f.Fail("temperature", "Enter a number from 0 to 2.")
		}
		a.Temperature = &t
	}
	return a
}

// priceAnswer says what the answer cost at the prices of the page, as the streaming script does.
func (p *pages) priceAnswer(c echo.Context, model string, a *Answer) error {
	models, err := p.Read.Models(c.Request().Context(), session.Must(c))
	if err != nil {
		return err
	}
	for _, m := range models {
		if m.Name != model {
			continue
		}
		if cost, ok := m.Prices.Cost(a.Usage); ok {
			a.Cost = cost.Nano()
		}
	}
	return nil
}

func (p *pages) palette(c echo.Context) error {
	who := session.Must(c)
	items := ui.PalettePages(ui.Customer)
	keys, err := p.Read.Keys(c.Request().Context(), who)
	if err != nil {
		return err
	}
	for _, k := range keys {
		items = append(items, ui.PaletteItem{Href: k.href(), Name: k.Name, Kind: "API key " + k.shown()})
	}
	models, err := p.Read.Models(c.Request().Context(), who)
	if err != nil {
		return err
	}
	for _, m := range models {
		items = append(items, ui.PaletteItem{Href: "/usage?group=key&model=" + url.QueryEscape(m.Name), Name: m.Name, Kind: "model's usage"})
	}
	if who.May.Has(session.PermKeys) {
		items = append(items, ui.PaletteItem{Href: "/keys/new", Name: "Create an API key", Kind: "action"})
	}
	list, err := p.Read.Requests(c.Request().Context(), who, RequestQuery{Limit: requestsPerPage})
	if err != nil {
		return err
	}
	for _, r := range list.Rows {
		items = append(items, ui.PaletteItem{Href: r.href(), Name: ids.Format(ids.Request, r.ID), Kind: "request"})
	}
	return ui.Render(c, http.StatusOK, ui.PaletteList(items))
}

func promptText(v usage.Vector) string {
	return ui.FormatCount(v.Prompt()) + " (" + ui.FormatCount(v[usage.Cached]) + " cached)"
}
