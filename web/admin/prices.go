package admin

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/session"
	"millrace/web/ui"
)

// previewTime bounds the pricing of the last 30 days.
const previewTime = 20 * time.Second

const (
	maxChange  = 50 // per cent a price may move without being typed twice
	maxNote    = 300
	dateTime   = "2006-01-02T15:04" // of a datetime-local control, read as UTC
	leastFirst = money.Pico(1_000)  // $0.001 per 1M: a first price below it was given per token
	mostFirst  = money.Pico(10_000_000_000)
	maxPrice   = money.Pico(1_000_000_000_000) // $1M per 1M tokens: above it no price is meant
	maxAhead   = 366 * 24 * time.Hour
)

// priceForm is the price page ready to draw: the form, or the preview of what it would publish.
type priceForm struct {
	page    ui.Page
	model   ModelDetail
	form    *ui.Form
	preview bool
	diff    ui.Grid
	terms   []string      // of the new version, in sentences
	traffic *PricePreview // nil = it could not be computed
	large   bool          // a slip of the unit, or a change as large as one
	guard   bool          // the model's name must be typed
	when    string
}

func (m ModelDetail) current(now time.Time) (PriceVersion, bool) {
	for _, v := range m.Versions {
		if !v.Effective.After(now) {
			return v, true
		}
	}
	return PriceVersion{}, false
}

func (p *pages) priceForm(c echo.Context) error {
	return p.showPrice(c, http.StatusOK, priceForm{form: &ui.Form{}})
}

func (p *pages) showPrice(c echo.Context, status int, v priceForm) error {
	id, err := pathID(c, ids.Model)
	if err != nil {
		return err
	}
	if v.model, err = p.Read.Model(c.Request().Context(), id); err != nil {
		return err
	}
	v.page = ui.Page{Title: "New price of " + v.model.Name, Path: modelsTop, Up: &ui.Link{Href: modelPath(id), Text: v.model.Name}, Lead: "Dollars per 1M tokens. A new version; nothing that was charged changes."}
	if v.preview {
		v.page.Title, v.page.Lead = "Check the new price of "+v.model.Name, "Nothing is published yet."
	}
	if v.form.Values == nil {
		v.form.Values = currentValues(v.model, p.Clock.Now())
	}
	return ui.Render(c, status, pricePage(v))
}

// currentValues fill the form with the version in force.
func currentValues(m ModelDetail, now time.Time) map[string][]string {
	values := map[string][]string{}
	if v, ok := m.current(now); ok {
		for _, c := range ui.PricedClasses {
			values[c.String()] = []string{inputPrice(v.Prices, c)}
		}
		termValues(values, &v.Terms)
	}
	return values
}

// inputPrice is a price as the form takes it: per 1M tokens, or per request.
func inputPrice(p usage.Prices, c usage.Class) string {
	if c == usage.Requests {
		return p[c].Nano().String()
	}
	return p[c].PerMillion()
}

// publishPrice first shows what would change; only a second, explicit step publishes.
func (p *pages) publishPrice(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	id, err := pathID(c, ids.Model)
	if err != nil {
		return err
	}
	m, err := p.Read.Model(c.Request().Context(), id)
	if err != nil {
		return err
	}
	x := p.readPrice(f, id)
	if !f.OK() || f.Get("step") == "edit" {
		status := http.StatusOK
		if !f.OK() {
			status = http.StatusUnprocessableEntity
		}
		return p.showPrice(c, status, priceForm{form: f})
	}
	v := priceForm{form: f, preview: true, when: "at once"}
	v.diff, v.large = priceDiff(m, x, p.Clock.Now())
	v.terms = x.Terms.Lines()
	ctx, cancel := context.WithTimeout(c.Request().Context(), previewTime)
	defer cancel()
	traffic, err := p.Read.PreviewPrice(ctx, x)
	switch {
	case err == nil:
		v.traffic = &traffic
	case absorbTerms(f, err):
		return p.showPrice(c, http.StatusUnprocessableEntity, priceForm{form: f})
	default:
		slog.WarnContext(ctx, "a price is shown without its preview", "cause", err)
	}
	v.guard = v.large || v.traffic != nil && len(v.traffic.Doubts) > 0
	if !x.Effective.IsZero() {
		v.when = "from " + x.Effective.UTC().Format("2 January 2006 15:04 UTC")
	}
	if f.Get("step") != "publish" {
		return p.showPrice(c, http.StatusOK, v)
	}
	if v.guard && f.Get("confirm") != m.Name {
		f.Fail("confirm", "Type the model's name to publish this price: "+m.Name)
		return p.showPrice(c, http.StatusUnprocessableEntity, v)
	}
	if err := p.Write.PublishPrice(c.Request().Context(), session.Must(c), x); err != nil {
		switch {
		case fault.Of(err).Code == "confirm_prices": // the domain has doubts that the page had not
			v.guard = true
			f.Absorb(err)
			return p.showPrice(c, http.StatusUnprocessableEntity, v)
		case absorbTerms(f, err):
			return p.showPrice(c, http.StatusUnprocessableEntity, priceForm{form: f})
		}
		return err
	}
	return c.Redirect(http.StatusSeeOther, modelPath(id)+"?done=price")
}

func (p *pages) readPrice(f *ui.Form, model ids.ID) NewPrice {
	x := NewPrice{Model: model, Note: f.Get("note"), Confirm: f.Get("confirm")}
	for _, c := range ui.PricedClasses {
		text := f.Get(c.String())
		if text == "" {
			continue // free
		}
		v, err := parsePrice(text, c)
		if err != nil || v < 0 || v > maxPrice {
			f.Fail(c.String(), ui.ClassName(c)+": enter dollars like 0.15, with at most six decimals.")
			continue
		}
		x.Prices[c] = v
	}
	x.Terms = readTerms(f, x.Prices)
	if f.OK() && (x.Prices[usage.Input] == 0) != (x.Prices[usage.Output] == 0) {
		f.Fail("output", "Input and output must both have a price, or both be free.")
	}
	if utf8.RuneCountInString(x.Note) > maxNote {
		f.Fail("note", "At most 300 characters.")
	}
	if t := f.Get("effective"); t != "" {
		at, err := time.Parse(dateTime, t)
		now := p.Clock.Now()
		if err != nil || at.Before(now.Add(-time.Minute)) || at.After(now.Add(maxAhead)) {
			f.Fail("effective", "Choose a moment between now and a year from now, in UTC, or leave it empty for at once.")
		}
		x.Effective = at
	}
	return x
}

func parsePrice(text string, c usage.Class) (money.Pico, error) {
	if c != usage.Requests {
		return money.ParsePerMillion(text)
	}
	n, err := money.ParseUSD(text)
	if err != nil || n > money.Nano(maxPrice/money.PicoPerNano) {
		return maxPrice + 1, err
	}
	return money.Pico(n) * money.PicoPerNano, nil
}

// termFields are the form's names for what the domain calls by its own.
var termFields = map[string]string{"tiers": tierField(1, "above"), "windows": windowField(1, "from")}

// absorbTerms is Form.Absorb for a price form.
func absorbTerms(f *ui.Form, err error) bool {
	if !f.Absorb(err) {
		return false
	}
	last := &f.Errors[len(f.Errors)-1]
	if name, ok := termFields[last.Field]; ok {
		last.Field = name
	}
	return true
}

// priceDiff lists every class that has or had a price, at every prompt length; guard is set when a change looks like a slip
// of the unit.
func priceDiff(m ModelDetail, next NewPrice, now time.Time) (g ui.Grid, guard bool) {
	was, has := m.current(now)
	g = ui.Grid{Caption: "What changes, per 1M tokens", Cards: true, Columns: []ui.Column{{Name: "Class"}, {Name: "Now", Num: true}, {Name: "New", Num: true}, {Name: "Change", Num: true}}}
	for _, length := range lengthsOf(was.Terms, next.Terms) {
		old, new := pricesAt(was.Prices, &was.Terms, length), pricesAt(next.Prices, &next.Terms, length)
		for _, c := range ui.PricedClasses {
			if old[c] == 0 && new[c] == 0 {
				continue
			}
			name := ui.T(ui.ClassName(c))
			if length > 0 {
				name = name.WithSub(ui.Above(length))
			}
			row, large := diffRow(name, old, new, c, has)
			guard = guard || large
			g.Rows = append(g.Rows, row)
		}
	}
	return g, guard
}

func diffRow(name ui.Cell, old, new usage.Prices, c usage.Class, has bool) (row ui.Row, large bool) {
	was := ui.T("–")
	if has {
		was = ui.UnitPrice(old, c)
	}
	change, large := changeText(old[c], new[c], has)
	cell := ui.T(change)
	if large {
		cell = ui.N(ui.Tag(ui.Warn, change), change)
	}
	return ui.Row{name, was, ui.UnitPrice(new, c), cell}, large
}

// changeText says how much a price moves and whether that is more than a price moves on purpose without a second look.
func changeText(old, next money.Pico, has bool) (text string, large bool) {
	switch {
	case old == next:
		return "unchanged", false
	case !has:
		return "first price", next > 0 && (next < leastFirst || next > mostFirst)
	case old == 0:
		return "was free", true
	case next == 0:
		return "becomes free", true
	}
	diff := next - old
	if diff > 0 {
		percent := ui.Percent(int64(diff), int64(old))
		return "+" + strconv.Itoa(percent) + " %", percent > maxChange || percent == maxChange && int64(diff)*100 > int64(old)*maxChange
	}
	percent := ui.Percent(int64(-diff), int64(old))
	return "−" + strconv.Itoa(percent) + " %", int64(-diff) > int64(old)/100*maxChange
}
