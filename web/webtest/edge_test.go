package webtest

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"millrace/internal/ids"
)

// HEAD says of a page what GET says, without the page.
func TestHeadWorksWhereverGetDoes(t *testing.T) {
	site := Start(t, Busy)
	ask := func(method string, p Page) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, site.URL+p.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := site.Client(p.Who).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	for _, p := range append(Pages(), Page{Path: "/favicon.ico"}) {
		if p.State != Busy || p.Form != "" {
			continue
		}
		want, _ := ask(http.MethodGet, p)
		got, body := ask(http.MethodHead, p)
		if got.StatusCode != want.StatusCode || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") || body != "" {
			t.Errorf("%s: HEAD says %d %s and %d bytes, GET says %d %s", p.Path, got.StatusCode, got.Header.Get("Content-Type"), len(body),
				want.StatusCode, want.Header.Get("Content-Type"))
		}
	}
	if resp, _ := ask(http.MethodHead, Page{Path: "/live", Who: Member}); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a stream without an end: HEAD says %d", resp.StatusCode)
	}
}

// The list of invoices does without the running month when that cannot be read.
func TestInvoicesAreListedWithoutTheRunningMonth(t *testing.T) {
	site := Start(t, Busy)
	site.Fixture.soFarFails = true
	resp, body := send(t, site, Member, "/billing/invoices", nil)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "is not known right now") || !strings.Contains(body, "INV-2026-") {
		t.Errorf("%d: %s", resp.StatusCode, body)
	}
}

// A cap is set on what the address names, or on nothing.
func TestACapOfAnotherOrganizationIsNotFound(t *testing.T) {
	site := Start(t, Busy)
	l, err := site.Fixture.Limits(t.Context(), viewer(t, site, Member))
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := "/limits/org/"+ids.Format(ids.Org, l.OrgID), "/limits/org/"+ids.Format(ids.Org, ids.New())
	for _, path := range []string{theirs, "/limits/org/x"} {
		for _, form := range []url.Values{nil, {"cap": {"5"}}} {
			if resp, body := send(t, site, Member, path, form); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "There is nothing with this id.") {
				t.Errorf("%s %v: %d", path, form, resp.StatusCode)
			}
		}
	}
	if resp, _ := send(t, site, Member, mine, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %d", mine, resp.StatusCode)
	}
	if resp, _ := send(t, site, Member, mine, url.Values{"cap": {"5"}}); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("setting %s: %d", mine, resp.StatusCode)
	}
}
