package domain_test

import (
	"archive/zip"
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"millrace/internal/ids"
	"millrace/web/webtest"
)

// tab is a browser on the real domain, signed in as somebody.
func (s *shop) tab(who string) (b *webtest.Browser, text func(css string) string) {
	s.t.Helper()
	b = webtest.Open(s.t)
	b.Look(webtest.Desktop, false)
	b.SignIn(&webtest.Site{URL: s.console.URL}, who)
	return b, func(css string) string {
		return webtest.Eval[string](b, "document.querySelector(`"+css+"`)?.textContent.trim().replace(/\\s+/g, ' ') ?? ''")
	}
}

func press(css string) chromedp.Action[chromedp.Void] { return chromedp.Click(chromedp.CSS(css)) }

// A customer opens an invoice and saves it as a document.
func TestACustomerDownloadsAnInvoice(t *testing.T) {
	s := newShop(t)
	id := s.invoice("INV-7", time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC))
	b, text := s.tab(s.owner)
	b.Do(chromedp.Navigate(s.console.URL + "/billing/invoices"))
	one := "/billing/invoices/" + ids.Format(ids.Invoice, id)
	b.Load(press(`a[href="` + one + `"]`))
	if got := text("h1"); got != "Invoice INV-7" {
		t.Errorf("the page is headed %q", got)
	}
	name, content := b.Download(press(`a[href="` + one + `/pdf"]`))
	if !strings.HasSuffix(name, ".pdf") || !strings.Contains(name, "INV-7") || !bytes.HasPrefix(content, []byte("%PDF-")) || !bytes.Contains(content[len(content)-32:], []byte("%%EOF")) {
		t.Errorf("%s: %d bytes that begin with %q", name, len(content), content[:min(8, len(content))])
	}
	for _, e := range b.Errors() {
		t.Errorf("console: %s", e)
	}
}

// An operator changes a price after looking at what it would have brought, and saves the month's revenue.
func TestAnOperatorChangesAPriceAndExportsTheMonth(t *testing.T) {
	s := newShop(t)
	b, text := s.tab(s.staff)
	b.Do(chromedp.Navigate(s.console.URL + "/admin/models/" + ids.Format(ids.Model, s.large.ID) + "/price"))
	b.Do(chromedp.SetValue(chromedp.CSS("#output"), "10"))
	b.Load(press(`button[value="preview"]`))
	if got := text("main"); !strings.Contains(got, "Acme Robotics") || !strings.Contains(got, "$10.00") {
		t.Errorf("the preview says %q", got)
	}
	b.Load(press(`button[value="publish"]`))
	if got := text("tbody"); !strings.Contains(got, "in force") || !strings.Contains(got, "$10.00") {
		t.Errorf("the versions show %q", got)
	}
	b.Do(chromedp.Navigate(s.console.URL + "/admin/revenue/export"))
	b.Do(chromedp.SetValue(chromedp.CSS("#from"), "2026-11-01"), chromedp.SetValue(chromedp.CSS("#to"), "2026-11-30"))
	name, content := b.Download(press("main form button.primary"))
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var rows, manifest string
	for _, f := range archive.File {
		r, err := f.Open()
		s.must(err)
		all, err := io.ReadAll(r)
		s.must(err)
		if strings.Contains(f.Name, "manifest") {
			manifest = string(all)
		} else {
			rows += string(all)
		}
	}
	if !strings.Contains(rows, "Acme Robotics") || !strings.Contains(rows, "demo/large") || !strings.Contains(manifest, "sha256") {
		t.Errorf("%s: %q, manifest %q", name, rows, manifest)
	}
	for _, e := range b.Errors() {
		t.Errorf("console: %s", e)
	}
}
