package webtest

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"millrace/internal/ids"
	"millrace/web/admin"
	"millrace/web/live"
)

// visit opens a page of a fresh site as someone.
func visit(t *testing.T, b *Browser, s State, who, path string) *Site {
	t.Helper()
	b.t = t
	site := Start(t, s)
	leaveAfter(t, b)
	b.Look(Desktop, false)
	b.SignIn(site, who)
	b.Do(chromedp.Navigate(site.URL + path))
	return site
}

// leaveAfter leaves the site before it closes: a page left open would go on asking it.
func leaveAfter(t *testing.T, b *Browser) {
	t.Cleanup(func() {
		b.Do(chromedp.Navigate("about:blank"))
		b.Errors()
	})
}

func text(b *Browser, css string) string {
	b.t.Helper()
	return Eval[string](b, `document.querySelector(`+quote(css)+`).textContent.trim()`)
}

func quote(s string) string { return "`" + s + "`" }

func typeIn(css, value string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(css), value)
}

func click(css string) chromedp.Action[chromedp.Void] { return chromedp.Click(chromedp.CSS(css)) }

// TestFlows drives the console as people do. One browser serves all flows: starting one is the slow part.
func TestFlows(t *testing.T) {
	b := Open(t)
	t.Run("a key is created, shown once, copied, listed and revoked", func(t *testing.T) { keyFlow(t, b) })
	t.Run("everything works without JavaScript", func(t *testing.T) { plainFlow(t, b) })
	t.Run("a refused form puts the focus on its first error", func(t *testing.T) { refusedFlow(t, b) })
	t.Run("the theme is kept", func(t *testing.T) { themeFlow(t, b) })
	t.Run("the palette goes anywhere", func(t *testing.T) { paletteFlow(t, b) })
	t.Run("the menu opens on a phone", func(t *testing.T) { menuFlow(t, b) })
	t.Run("the playground streams, stops and says what it cost", func(t *testing.T) { playFlow(t, b) })
	t.Run("an open page hears what changes", func(t *testing.T) { liveFlow(t, b) })
	t.Run("a large price change must be typed", func(t *testing.T) { priceFlow(t, b) })
}

func keyFlow(t *testing.T, b *Browser) {
	site := visit(t, b, Busy, Member, "/keys")
	b.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		for _, name := range []string{"clipboard-read", "clipboard-write"} {
			p := browser.SetPermissionParams{Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted, Origin: site.URL}
			if _, err := chromedp.CallBrowser(ctx, browser.SetPermission, p); err != nil {
				return err
			}
		}
		return nil
	}))
	b.Load(click(`a[href="/keys/new"]`))
	b.Do(typeIn("#name", "nightly"), typeIn("#cap", "25"))
	b.Load(click("form.form button.primary"))
	if got := text(b, "#new-key"); got != Secret {
		t.Errorf("the page shows %q", got)
	}
	if strings.Contains(Get(b, chromedp.Location()), Secret) {
		t.Error("the secret is in the address")
	}
	b.Do(click(`[data-copy="new-key"]`))
	b.Until(`document.querySelector(".toast").textContent === "Copied"`)
	if got := Eval[string](b, `navigator.clipboard.readText()`); got != Secret {
		t.Errorf("copied %q", got)
	}
	b.Load(click(".head .btn.primary"))
	row := text(b, "tbody tr")
	if !strings.Contains(row, "nightly") || !strings.Contains(row, "$0.00 of $25.00") || strings.Contains(Eval[string](b, `document.body.textContent`), Secret) {
		t.Errorf("the list shows %q", row)
	}
	b.Load(click("tbody tr .actions a"))
	b.Do(typeIn("#confirm", "nightl"))
	b.Load(click(".danger.primary"))
	if got := text(b, "#confirm-error"); !strings.Contains(got, "exactly") {
		t.Errorf("a wrong name is answered with %q", got)
	}
	b.Do(chromedp.SetValue(chromedp.CSS("#confirm"), "nightly"))
	b.Load(click(".danger.primary"))
	if got := text(b, "tbody tr .tag"); got != "revoked" {
		t.Errorf("the key is %q", got)
	}
	if got := text(b, ".toast"); !strings.Contains(got, "within a second") {
		t.Errorf("the toast says %q", got)
	}
}

func scripts(b *Browser, on bool) {
	b.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
		return err
	}))
}

// plainFlow signs in by the link, creates and revokes a key, changes the theme and asks the playground, without scripts.
func plainFlow(t *testing.T, b *Browser) {
	site := visit(t, b, Busy, "", "/login/link?t="+Token)
	scripts(b, false)
	defer scripts(b, true)
	b.Do(chromedp.Reload())
	b.Load(click("form button.primary"))
	if got := b.html("h1"); got != "Home" {
		t.Fatalf("signed in to %q", got)
	}
	b.Load(click(`button[value="dark"]`))
	if got := Get(b, chromedp.AttributeValue(chromedp.CSS("html"), "data-theme")); got.Value != "dark" {
		t.Errorf("theme %+v", got)
	}
	b.Do(chromedp.Navigate(site.URL+"/keys/new"), typeIn("#name", "plain"))
	b.Load(click("form.form button.primary"))
	if got := b.html("#new-key"); got != Secret {
		t.Errorf("the page shows %q", got)
	}
	b.Do(chromedp.Navigate(site.URL+"/playground"), typeIn("#message", "hello"))
	b.Load(click("#send"))
	if got := b.html("#said"); got != Words {
		t.Errorf("the playground answers %q", got)
	}
	b.Do(chromedp.Navigate(site.URL+"/playground"), typeIn("#message", "refuse"))
	b.Load(click("#send"))
	if got := b.html("#failed div"); !strings.Contains(got, "used up") {
		t.Errorf("a refusal reads %q", got)
	}
	b.Look(Phone, false)
	b.Do(chromedp.Navigate(site.URL+"/"), click(".topbar button"), chromedp.WaitVisible(chromedp.CSS(`#side a[href="/usage"]`)))
	b.Load(click(`#side a[href="/usage"]`))
	if got := b.html("h1"); got != "Usage" {
		t.Errorf("the menu leads to %q", got)
	}
}

// html reads an element's text where no script may run.
func (b *Browser) html(css string) string {
	b.t.Helper()
	return strings.TrimSpace(Get(b, chromedp.TextContent(chromedp.CSS(css))))
}

func refusedFlow(t *testing.T, b *Browser) {
	visit(t, b, Busy, Member, "/keys/new")
	b.Do(typeIn("#name", "x"), typeIn("#cap", "lots"))
	b.Load(click("form.form button.primary"))
	b.Until(`document.activeElement.id === "cap"`) // the browser sets it when it next draws
	if got := Eval[string](b, `document.getElementById(document.activeElement.getAttribute("aria-describedby").split(" ").pop()).textContent`); !strings.Contains(got, "Enter dollars") {
		t.Errorf("the field is described by %q", got)
	}
	if got := Eval[string](b, `document.querySelector("#name").value`); got != "x" {
		t.Errorf("what was typed is lost: %q", got)
	}
	b.Errors() // 422 is logged by the browser
}

func themeFlow(t *testing.T, b *Browser) {
	visit(t, b, Busy, Member, "/")
	background := `getComputedStyle(document.body).backgroundColor`
	before := Eval[string](b, background)
	b.Do(click(`button[value="dark"]`))
	b.Until(background + ` !== "` + before + `"`)
	dark := Eval[string](b, background)
	b.Do(chromedp.Reload())
	if got := Eval[string](b, background); got != dark {
		t.Errorf("after a reload the page is %s, not %s", got, dark)
	}
	b.Do(click(`button[value="auto"]`))
	b.Until(background + ` === "` + before + `"`)
}

func paletteFlow(t *testing.T, b *Browser) {
	visit(t, b, Busy, Operator, "/admin")
	b.Do(chromedp.KeyEvent("k", chromedp.KeyModifiers(kb.ModifierCtrl)))
	b.Until(`document.querySelector("#palette").open && document.querySelectorAll('#palette [role="option"]').length > 10`)
	for _, v := range b.Axe(false) {
		t.Errorf("open palette: %s", v)
	}
	b.Shot("palette-desktop-light")
	b.Do(chromedp.KeyEvent("bluefin"))
	b.Until(`document.querySelectorAll('#palette [role="option"]:not([hidden])').length === 1`)
	b.Load(chromedp.KeyEvent(kb.Enter))
	if got := text(b, "h1"); got != "Bluefin Search" {
		t.Errorf("the palette leads to %q", got)
	}
	b.Do(chromedp.KeyEvent("k", chromedp.KeyModifiers(kb.ModifierCtrl)))
	b.Until(`document.querySelector("#palette").open`)
	b.Do(chromedp.KeyEvent("no such thing"))
	b.Until(`!document.querySelector("#palette .none").hidden`)
	b.Do(chromedp.KeyEvent(kb.Escape))
	b.Until(`!document.querySelector("#palette").open`)
}

func menuFlow(t *testing.T, b *Browser) {
	visit(t, b, Busy, Member, "/")
	b.Look(Phone, true)
	b.Do(chromedp.Reload())
	if Eval[bool](b, `document.querySelector("#side").checkVisibility()`) {
		t.Error("the navigation is a wall on a phone")
	}
	b.Do(click(".topbar button"))
	b.Until(`document.querySelector("#side").checkVisibility()`)
	for _, v := range b.Axe(false) {
		t.Errorf("open menu: %s", v)
	}
	b.Shot("menu-phone-dark")
	b.Load(click(`#side a[href="/keys"]`))
	if got := text(b, "h1"); got != "API keys" {
		t.Errorf("the menu leads to %q", got)
	}
}

func playFlow(t *testing.T, b *Browser) {
	visit(t, b, Busy, Member, "/playground")
	b.Do(chromedp.SetValue(chromedp.CSS("#model"), "acme/llama-70b"), typeIn("#message", "hello"), click("#send"))
	b.Until(`document.querySelector("#stop").hidden && document.querySelector("#t-cost").textContent !== "–"`)
	// 600 × $0.60 + 400 × $0.15 + 5 × $0.90 per 1M tokens
	if got, cost := text(b, "#said"), text(b, "#t-cost"); got != Words || cost != "$0.000424500" {
		t.Errorf("answer %q for %s", got, cost)
	}
	Eval[string](b, `document.querySelector("#message").value = ""`)
	b.Do(typeIn("#message", "never end"))
	b.Until(`document.querySelector("#curl-sample").textContent.includes("never end")`)
	b.Do(click("#send"))
	b.Until(`!document.querySelector("#stop").hidden && document.querySelector("#said").textContent === "` + Words + `"`)
	b.Do(click("#stop"))
	b.Until(`!document.querySelector("#failed").hidden && document.querySelector("#stop").hidden`)
	if got := text(b, "#failed"); !strings.HasPrefix(got, "Stopped.") {
		t.Errorf("after a stop the page says %q", got)
	}
	b.Do(chromedp.SetValue(chromedp.CSS("#message"), "refuse"), click("#send"))
	b.Until(`document.querySelector("#failed").textContent.includes("used up")`)
	b.Errors() // the refusal is logged by the browser
}

func liveFlow(t *testing.T, b *Browser) {
	site := visit(t, b, Busy, Member, "/")
	for site.Live.Streams() == 0 {
		Eval[bool](b, `new Promise(r => setTimeout(() => r(true), 20))`)
	}
	if got := text(b, ".hero .value"); got != "$182.40" {
		t.Fatalf("balance %q", got)
	}
	who := viewer(t, site, Operator)
	if _, err := (business{site.Fixture}).GrantCredit(t.Context(), who, admin.Grant{Org: id(kindOrg, 1), Amount: usd("17.60"), Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	site.Live.Publish(live.Org(id(kindOrg, 2)), live.Credit) // another organization's: nothing happens
	site.Live.Publish(live.Org(id(kindOrg, 1)), live.Credit)
	b.Until(`document.querySelector(".hero .value").textContent.trim() === "$200.00"`)
	if n := Eval[int64](b, `document.querySelectorAll("#home-now").length`); n != 1 {
		t.Errorf("%d live parts after an update", n)
	}
	for _, e := range b.Errors() {
		t.Errorf("console: %s", e)
	}
}

func priceFlow(t *testing.T, b *Browser) {
	model := path("/admin/models/", ids.Model, id(kindModel, 0))
	visit(t, b, Busy, Operator, model+"/price")
	b.Do(chromedp.SetValue(chromedp.CSS("#input"), "2.8"))
	b.Load(click(`button[value="preview"]`))
	b.Do(typeIn("#confirm", "yes"))
	b.Load(click(`button[value="publish"]`))
	if got := text(b, "#confirm-error"); !strings.Contains(got, "acme/deepseek-flash") {
		t.Fatalf("published without the name: %q", got)
	}
	b.Load(click(`button[value="edit"]`))
	if got := Eval[string](b, `document.querySelector("#input").value`); got != "2.8" {
		t.Errorf("going back lost the price: %q", got)
	}
	b.Do(chromedp.SetValue(chromedp.CSS("#input"), "0.30"))
	b.Load(click(`button[value="preview"]`))
	b.Load(click(`button[value="publish"]`))
	if got := text(b, "tbody tr:nth-child(2)"); !strings.Contains(got, "in force") || !strings.Contains(got, "$0.30") {
		t.Errorf("the versions show %q", got)
	}
	b.Errors() // 422 is logged by the browser
}
