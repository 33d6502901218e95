package webtest

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// open shows a page in the browser; a page behind a form is reached by submitting that form.
func open(b *Browser, s *Site, p Page) {
	b.t.Helper()
	b.SignIn(s, p.Who)
	if p.Form == "" {
		b.Do(chromedp.Navigate(s.URL + p.Path))
		return
	}
	b.Do(chromedp.Navigate(s.URL + "/assets/none")) // a plain page of the same origin to post from
	b.Errors()
	b.Load(chromedp.Evaluate[chromedp.Void](postScript(p)))
}

func postScript(p Page) string {
	return `(() => {
		const form = document.createElement("form");
		form.method = "post";
		form.action = "` + p.Path + `";
		for (const [k, v] of new URLSearchParams("` + p.Form + `")) {
			const i = document.createElement("input");
			i.name = k;
			i.value = v;
			form.append(i);
		}
		document.body.append(form);
		form.submit();
	})()`
}

// expected are console messages of pages that answer with an error on purpose.
func expected(p Page, message string) bool {
	return p.Status >= 400 && strings.HasPrefix(message, "Failed to load resource")
}

// Every page, at two widths and in both themes: no accessibility violation, no sideways scrolling, one h1, no script or
// policy error.
func TestEveryPageInABrowser(t *testing.T) {
	b := Open(t)
	titles := map[string]string{}
	for _, p := range Pages() {
		t.Run(p.Name, func(t *testing.T) {
			b.t = t
			site := Start(t, p.State)
			leaveAfter(t, b)
			for _, w := range []Width{Desktop, Phone} {
				b.Look(w, false)
				open(b, site, p)
				check(b, p, w)
				for _, dark := range []bool{false, true} {
					b.Look(w, dark)
					name := p.Name + "-" + w.String() + map[bool]string{false: "-light", true: "-dark"}[dark]
					for _, v := range b.Axe(dark) {
						t.Errorf("%s: %s", name, v)
					}
					b.Shot(name)
				}
				if p.Form != "" {
					site = Start(t, p.State) // a form is sent once
				}
			}
			title := Get(b, chromedp.Title())
			if other, taken := titles[title]; taken && !strings.HasPrefix(p.Name, "empty-") && p.Status == 0 && !samePage(other, p.Name) {
				t.Errorf("%s and %s share the title %q", other, p.Name, title)
			}
			titles[title] = p.Name
			for _, e := range b.Errors() {
				if !expected(p, e) {
					t.Errorf("console: %s", e)
				}
			}
		})
	}
}

// samePage reports two states of one page, which rightly share a title.
func samePage(a, b string) bool {
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) || strings.HasPrefix(a, "usage") && strings.HasPrefix(b, "usage")
}

func check(b *Browser, p Page, w Width) {
	b.t.Helper()
	if wide := Eval[int64](b, `document.documentElement.scrollWidth`); wide > int64(w) {
		culprit := Eval[string](b, `[...document.querySelectorAll("main *, .topbar *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, .vh, pre")).map(e => e.tagName + "." + e.className).slice(0, 5).join("  ")`)
		b.t.Errorf("%s on a %s scrolls sideways: %d wide: %s", p.Path, w, wide, culprit)
	}
	if w == Desktop {
		for _, s := range Eval[[]string](b, `[...document.querySelectorAll(".scroll")].filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1).map(e => e.ariaLabel + " " + e.scrollWidth + " > " + e.clientWidth)`) {
			b.t.Errorf("%s: a table does not fit its card on a desktop: %s", p.Path, s)
		}
	}
	if n := Eval[int64](b, `document.querySelectorAll("h1").length`); n != 1 {
		b.t.Errorf("%s has %d h1", p.Path, n)
	}
	if w == Phone {
		small := Eval[[]string](b, `[...document.querySelectorAll("main a.btn, main button, .topbar button, .topbar a, main input.input, main select")].filter(e => e.offsetParent && e.getBoundingClientRect().height < 43.5).map(e => e.outerHTML.slice(0, 90))`)
		for _, s := range small {
			b.t.Errorf("%s: a target is lower than 44 px on a phone: %s", p.Path, s)
		}
	}
}
