package webtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/web/session"
)

func viewer(t *testing.T, s *Site, who string) session.Viewer {
	t.Helper()
	v, err := s.Fixture.Lookup(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The access matrix: every page and form for everyone, compared with a file that a person reads when it changes.
func TestAccessMatrix(t *testing.T) {
	people := []string{"", Reader, Member, Operator, Both}
	var out strings.Builder
	fmt.Fprintf(&out, "%-34s %-9s %-7s %-7s %-9s %s\n", "page", "stranger", "reader", "member", "operator", "both")
	seen := map[string]bool{}
	for _, p := range Pages() {
		route, _, _ := strings.Cut(p.Path, "?")
		method := "GET "
		if p.Form != "" {
			method = "POST "
		}
		if seen[method+route] || p.State != Busy || strings.HasPrefix(p.Path, "/login") {
			continue
		}
		seen[method+route] = true
		fmt.Fprintf(&out, "%-34s", method+p.Name)
		for _, who := range people {
			p.Who = who
			_, resp, _ := fetchPage(t, p)
			fmt.Fprintf(&out, " %-7d", resp.StatusCode)
		}
		out.WriteString("\n")
	}
	file := filepath.Join("testdata", "access.txt")
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("who may see what has changed (-want +got):\n%s", d)
	}
}
