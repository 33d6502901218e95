package webtest

import (
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/web/assets"
)

var update = flag.Bool("update", false, "rewrite the golden pages")

// fetchPage asks for a page as its person would, on a site of its own: what one page changes no other one sees.
func fetchPage(t *testing.T, p Page) (*Site, *http.Response, string) {
	t.Helper()
	site := Start(t, p.State)
	method, body := http.MethodGet, io.Reader(nil)
	if p.Form != "" {
		method, body = http.MethodPost, strings.NewReader(p.Form)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, site.URL+p.Path, body)
	if err != nil {
		t.Fatal(err)
	}
	if p.Form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	resp, err := site.Client(p.Who).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return site, resp, string(raw)
}

var changing = []struct{ pattern, with string }{
	{` nonce="[^"]*"`, ` nonce="…"`},
	{`name="id" value="[0-9a-f-]{36}"`, `name="id" value="…"`},
	{`http://127\.0\.0\.1:\d+`, `https://api.example`},
}

func settle(s string) string {
	s = strings.ReplaceAll(s, assets.Hash(), "HASH")
	for _, c := range changing {
		s = regexp.MustCompile(c.pattern).ReplaceAllString(s, c.with)
	}
	return strings.ReplaceAll(s, "><", ">\n<")
}

func TestGoldenPages(t *testing.T) {
	for _, p := range Pages() {
		t.Run(p.Name, func(t *testing.T) {
			_, resp, body := fetchPage(t, p)
			if want := max(p.Status, http.StatusOK); resp.StatusCode != want {
				t.Fatalf("%s answers %d, want %d:\n%s", p.Path, resp.StatusCode, want, body)
			}
			file := filepath.Join("testdata", "golden", strings.ReplaceAll(p.Name, "/", "-")+".html")
			got := settle(body)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
				t.Errorf("%s changed (-want +got); run with -update if it should:\n%s", p.Path, d)
			}
		})
	}
}
