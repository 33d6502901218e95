package webtest

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestScreenshots takes the documentation's pictures: what a screen shows, not the whole length of a page. It runs only
// when MILLRACE_SCREENSHOTS names their folder.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("MILLRACE_SCREENSHOTS")
	if dir == "" {
		t.Skip("MILLRACE_SCREENSHOTS names no folder")
	}
	b, site := Open(t), Start(t, Busy)
	for _, p := range []struct {
		name, path, who string
		width           Width
		dark            bool
	}{
		{"home", "/", Member, Desktop, false},
		{"home-dark", "/", Member, Desktop, true},
		{"home-phone", "/", Member, Phone, false},
		{"keys", "/keys", Member, Desktop, false},
		{"usage", "/usage", Member, Desktop, false},
		{"request", path("/requests/", "req", id(kindRequest, 5)), Member, Desktop, false},
		{"playground", "/playground", Member, Desktop, false},
		{"operator", "/admin", Operator, Desktop, false},
		{"fleet", "/admin/fleet", Operator, Desktop, false},
		{"hosts", "/admin/hosts", Operator, Desktop, false},
		{"units", "/admin/units", Operator, Desktop, true},
		{"reconcile", "/admin/reconcile", Operator, Desktop, false},
	} {
		b.Look(p.width, p.dark)
		b.SignIn(site, p.who)
		b.Do(chromedp.Navigate(site.URL + p.path))
		if p.name == "playground" {
			b.Do(chromedp.SetValue(chromedp.CSS("#model"), "acme/llama-70b"), typeIn("#message", "What turns the mill?"), click("#send"))
			b.Until(`document.querySelector("#t-cost").textContent !== "–"`)
		}
		b.write(dir, p.name, Get(b, chromedp.CaptureScreenshot()))
	}
}
