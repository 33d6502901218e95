package webtest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// axe is axe-core 4.14.1, the accessibility checker (MPL-2.0, see testdata/README). It runs in tests only.
//
//go:embed testdata/axe.min.js
var axe string

// Width is a screen's width in CSS pixels.
type Width int64

// The widths every page is looked at.
const (
	Desktop Width = 1280
	Phone   Width = 390
)

func (w Width) String() string {
	if w == Phone {
		return "phone"
	}
	return "desktop"
}

func (w Width) height() int64 {
	if w == Phone {
		return 844
	}
	return 900
}

// Browser is one tab of a running browser.
type Browser struct {
	t       testing.TB
	ctx     context.Context
	mu      sync.Mutex
	console []string
}

// stepTimeout bounds one step in the browser on a busy machine.
const stepTimeout = 60 * time.Second

// Open starts a browser with one empty tab, or skips the test loudly where there is none. With
// MILLRACE_REQUIRE_BROWSER=1 a missing browser fails the test.
func Open(t testing.TB) *Browser {
	t.Helper()
	path := find()
	if path == "" {
		const text = "NO BROWSER: chromium or google-chrome is not in PATH, so the console was NOT looked at"
		if os.Getenv("MILLRACE_REQUIRE_BROWSER") == "1" {
			t.Fatal(text)
		}
		fmt.Fprintln(os.Stderr, "--- SKIPPED: "+t.Name()+": "+text)
		t.Skip(text)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, closeTab := chromedp.NewContext(alloc)
	b := &Browser{t: t, ctx: ctx}
	var listening sync.WaitGroup
	t.Cleanup(func() {
		closeTab()
		stop()
		listening.Wait()
	})
	if err := chromedp.Do(ctx); err != nil { // the first step carries no deadline: its end would end the browser
		t.Fatalf("the browser at %s does not start: %v", path, err)
	}
	b.listen(&listening)
	return b
}

func find() string {
	for _, name := range []string{"chromium", "google-chrome", "chromium-browser", "google-chrome-stable"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	return ""
}

// listen collects errors that pages write to the console, broken content policies among them.
func (b *Browser) listen(done *sync.WaitGroup) {
	messages := chromedp.Console(b.ctx)
	done.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.IsException() {
				b.mu.Lock()
				b.console = append(b.console, m.Text+" ("+m.URL+")")
				b.mu.Unlock()
			}
		}
	})
}

// Errors are what pages complained about since the last call.
func (b *Browser) Errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.console
	b.console = nil
	return out
}

// Do runs steps and fails the test when one fails.
func (b *Browser) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// Load runs steps that lead to another page and waits until it is there.
func (b *Browser) Load(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// Get runs a step that has a value.
func Get[T any](b *Browser, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// Eval evaluates an expression in the page.
func Eval[T any](b *Browser, expression string) T {
	b.t.Helper()
	return Get(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Until waits until an expression is true in the page.
func (b *Browser) Until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond))); err != nil {
		b.t.Fatalf("waiting for %s: %v", expression, err)
	}
}

// Arrive waits until an expression is true in whatever page is open by then: pages on the way may be gone while they are asked.
func (b *Browser) Arrive(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	for {
		there, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		if there {
			return
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("arriving where %s: %v", expression, err)
		case <-time.After(arriveEvery):
		}
	}
}

const arriveEvery = 100 * time.Millisecond

// SignIn sets the session cookie for a site.
func (b *Browser) SignIn(s *Site, who string) {
	b.t.Helper()
	b.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
			return err
		}
		if who == "" {
			return nil
		}
		_, err := cdp.Call(ctx, t, network.SetCookie, network.SetCookieParams{Name: "millrace_session", Value: who, URL: s.URL, HTTPOnly: new(true)})
		return err
	}))
}

// Look sets the screen and the system's theme; nothing moves.
func (b *Browser) Look(w Width, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	var touch []chromedp.EmulateViewportOption
	if w == Phone {
		touch = append(touch, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	b.Do(chromedp.EmulateViewport(int64(w), w.height(), touch...), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	}))
}

// Axe lists what axe-core finds wrong with the page, one line each. In the dark theme only the contrast is asked again:
// nothing else depends on the theme.
func (b *Browser) Axe(dark bool) []string {
	b.t.Helper()
	only := ""
	if dark {
		only = `, runOnly: ["color-contrast"]`
	}
	Eval[bool](b, `typeof globalThis.axe === "object" || (() => {`+axe+`; return true})()`)
	return Eval[[]string](b, `axe.run({resultTypes: ["violations"]`+only+`}).then(r => r.violations.flatMap(v =>
		v.nodes.map(n => v.id + ": " + v.help + " | " + n.target.join(" ") + " | " + (n.any[0]?.message ?? n.all[0]?.message ?? n.none[0]?.message ?? ""))))`)
}

// Shot writes a picture of the whole page when MILLRACE_SHOTS names a folder.
func (b *Browser) Shot(name string) {
	b.t.Helper()
	if dir := os.Getenv("MILLRACE_SHOTS"); dir != "" {
		const lossless = 100
		b.write(dir, name, Get(b, chromedp.FullScreenshot(lossless)))
	}
}

func (b *Browser) write(dir, name string, picture []byte) {
	b.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
