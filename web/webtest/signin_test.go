package webtest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"millrace/tenants"
)

// send posts a form as a browser on the same site does, or gets a page when form is nil.
func send(t *testing.T, s *Site, who, path string, form url.Values, header ...string) (*http.Response, string) {
	t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client(who).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

// A mail scanner that fetches the link must not use it up; the person's button does, once.
func TestASignInLinkWorksOnceAndOnlyByItsButton(t *testing.T) {
	s := Start(t, Busy)
	for range 3 {
		resp, body := send(t, s, "", "/login/link?t="+Token, nil)
		if resp.StatusCode != 200 || !strings.Contains(body, `value="`+Token+`"`) {
			t.Fatalf("the link's page: %d %s", resp.StatusCode, body)
		}
		if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Referrer-Policy") != "no-referrer" || len(resp.Cookies()) != 0 {
			t.Fatalf("headers of the link's page: %v", resp.Header)
		}
	}
	resp, _ := send(t, s, "", "/login/link", url.Values{"t": {Token}})
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/" {
		t.Fatalf("using the link: %d to %s", resp.StatusCode, resp.Header.Get("Location"))
	}
	k := resp.Cookies()[0]
	if !k.HttpOnly || k.SameSite != http.SameSiteLaxMode || k.Path != "/" || k.Secure || k.Value != Member {
		t.Errorf("cookie %+v", k)
	}
	resp, body := send(t, s, "", "/login/link", url.Values{"t": {Token}})
	if resp.StatusCode != 401 || len(resp.Cookies()) != 0 || !strings.Contains(body, "no longer works") {
		t.Errorf("the same link again: %d %s", resp.StatusCode, body)
	}
}

func TestAskingForALinkTellsNothing(t *testing.T) {
	s := Start(t, Busy)
	_, known := send(t, s, "", "/login", url.Values{"email": {"dana@acme.example"}})
	_, unknown := send(t, s, "", "/login", url.Values{"email": {"nobody@acme.example"}})
	if settle(known) != settle(unknown) {
		t.Error("the answer differs between a known and an unknown address")
	}
	for _, bad := range []string{"", "dana", "dana@acme.example, eve@evil.example", "Dana <dana@acme.example>", strings.Repeat("x", 250) + "@a.example"} {
		if resp, _ := send(t, s, "", "/login", url.Values{"email": {bad}}); resp.StatusCode != 422 {
			t.Errorf("%q: %d, want 422", bad, resp.StatusCode)
		}
	}
}

// The page must not promise a longer life than links have.
func TestTheSignInPageTellsALinksLife(t *testing.T) {
	_, body := send(t, Start(t, Busy), "", "/login", nil)
	if want := fmt.Sprintf("for %d minutes", int(tenants.LinkTTL.Minutes())); !strings.Contains(body, want) {
		t.Errorf("the page does not say %q", want)
	}
}

func TestWrongMethodsAndPathsArePages(t *testing.T) {
	s := Start(t, Busy)
	for path, want := range map[string]int{"/usage": 405, "/nowhere": 404, "/keys/not-an-id/revoke": 404, path("/keys/", "key", id(kindKey, 99)) + "/revoke": 404} {
		resp, body := send(t, s, Member, path, url.Values{"confirm": {"x"}})
		if resp.StatusCode != want || !strings.Contains(body, "<h1>") || resp.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("POST %s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestSigningOutEndsTheSession(t *testing.T) {
	s := Start(t, Busy)
	resp, _ := send(t, s, Member, "/logout", url.Values{})
	if resp.StatusCode != 303 || resp.Cookies()[0].MaxAge >= 0 {
		t.Fatalf("%d %v", resp.StatusCode, resp.Cookies())
	}
	if resp, _ := send(t, s, Member, "/keys", nil); resp.StatusCode != 303 || !strings.HasPrefix(resp.Header.Get("Location"), "/login") {
		t.Errorf("the old cookie still opens pages: %d", resp.StatusCode)
	}
}

// Nothing changes on a request from another site, whatever cookie it carries.
func TestCrossSiteRequestsAreRefused(t *testing.T) {
	s := Start(t, Busy)
	key := path("/keys/", "key", id(kindKey, 1))
	for _, p := range []string{"/login/link", "/logout", "/theme", "/keys", key + "/revoke", "/playground/key", "/admin/customers", "/admin/units", "/admin/hosts/join"} {
		for _, who := range []string{Member, Both} {
			resp, _ := send(t, s, who, p, url.Values{"confirm": {"ci-nightly"}, "t": {Token}}, "Sec-Fetch-Site", "cross-site")
			if resp.StatusCode != 403 {
				t.Errorf("%s from another site: %d, want 403", p, resp.StatusCode)
			}
			resp, _ = send(t, s, who, p, url.Values{}, "Sec-Fetch-Site", "", "Origin", "https://evil.example")
			if resp.StatusCode != 403 {
				t.Errorf("%s with a foreign origin: %d, want 403", p, resp.StatusCode)
			}
		}
	}
	if k, err := s.Fixture.Key(t.Context(), viewer(t, s, Member), id(kindKey, 1)); err != nil || !k.Revoked.IsZero() {
		t.Errorf("the key was revoked (%v)", err)
	}
	if resp, _ := send(t, s, Member, "/keys", nil); resp.StatusCode != 200 {
		t.Error("the session was ended from another site")
	}
}

func TestEveryPageCarriesTheGuards(t *testing.T) {
	nonces := map[string]bool{}
	for _, p := range Pages() {
		if p.State != Busy {
			continue
		}
		_, resp, body := fetchPage(t, p)
		csp := resp.Header.Get("Content-Security-Policy")
		_, nonce, _ := strings.Cut(csp, "'nonce-")
		nonce, _, _ = strings.Cut(nonce, "'")
		switch shared := strings.HasPrefix(resp.Header.Get("Cache-Control"), "public"); {
		case strings.Contains(csp, "unsafe"):
			t.Errorf("%s: policy %q", p.Name, csp)
		case shared && (!strings.Contains(csp, "script-src 'self';") || strings.Contains(body, "<script>")): // caches keep it: no nonce
			t.Errorf("%s: policy %q", p.Name, csp)
		case !shared && resp.StatusCode/100 != 3 && (nonce == "" || nonces[nonce] || !strings.Contains(body, `nonce="`+nonce+`"`)):
			t.Errorf("%s: policy %q", p.Name, csp)
		}
		nonces[nonce] = true
		for h, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin"} {
			if resp.Header.Get(h) != want {
				t.Errorf("%s: %s = %q", p.Name, h, resp.Header.Get(h))
			}
		}
		if strings.Contains(body, " style=") || strings.Contains(body, " onclick=") || strings.Contains(body, "javascript:") {
			t.Errorf("%s holds an inline style or handler", p.Name)
		}
		if cache := resp.Header.Get("Cache-Control"); strings.Contains(body, Secret) && cache != "no-store" || cache == "" {
			t.Errorf("%s: Cache-Control %q", p.Name, cache)
		}
	}
}

// A page stays small: what a phone on a slow line loads first.
func TestPagesStayInBudget(t *testing.T) {
	const budget = 60 << 10 // bytes of HTML before compression
	for _, p := range Pages() {
		if _, _, body := fetchPage(t, p); len(body) > budget {
			t.Errorf("%s has %d bytes, budget %d", p.Name, len(body), budget)
		}
	}
}
