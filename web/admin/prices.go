package admin

import (
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
	large   bool // a slip of the unit, or a change as large as one
	guard   bool // the model's name must be typed
	when    string
}

func (m ModelDetail) current(now time.Time) (usage.Prices, bool) {
	for _, v := range m.Versions {
		if !v.Effective.After(now) {
			return v.Prices, true
		}
	}
	return usage.Prices{}, false
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
	if prices, ok := m.current(now); ok {
		for _, c := range ui.PricedClasses {
			values[c.String()] = []string{inputPrice(prices, c)}
		}
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
	v.diff, v.large = priceDiff(m, x.Prices, p.Clock.Now())
	v.guard = v.large
	if !x.Effective.IsZero() {
		v.when = "from " + x.Effective.UTC().Format("2 January 2006 15:04 UTC")
	}
	if f.Get("step") != "publish" {
		return p.showPrice(c, http.StatusOK, v)
	}
	if v.guard && f.Get("confirm") != m.Name {
		f.Fail("confirm", "Type the model's name to publish a change this large: "+m.Name)
		return p.showPrice(c, http.StatusUnprocessableEntity, v)
	}
	if err := p.Write.PublishPrice(c.Request().Context(), session.Must(c), x); err != nil {
		switch {
		case fault.Of(err).Code == "confirm_prices": // the domain has doubts that the page had not
			v.guard = true
			f.Absorb(err)
			return p.showPrice(c, http.StatusUnprocessableEntity, v)
		case f.Absorb(err):
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

// priceDiff lists every class that has or had a price; guard is set when the change looks like a slip of the unit.
func priceDiff(m ModelDetail, next usage.Prices, now time.Time) (g ui.Grid, guard bool) {
	old, has := m.current(now)
	g = ui.Grid{Caption: "What changes, per 1M tokens", Columns: []ui.Column{{Name: "Class"}, {Name: "Now", Num: true}, {Name: "New", Num: true}, {Name: "Change", Num: true}}}
	for _, c := range ui.PricedClasses {
		if old[c] == 0 && next[c] == 0 {
			continue
		}
		was := ui.T("–")
		if has {
			was = classPrice(old, c)
		}
		change, large := changeText(old[c], next[c], has)
		guard = guard || large
		cell := ui.T(change)
		if large {
			cell = ui.N(ui.Tag(ui.Warn, change), change)
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(ui.ClassName(c)), was, classPrice(next, c), cell})
	}
	return g, guard
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
