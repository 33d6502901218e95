package bench

import (
	"bytes"
	"strings"
	"testing"
)

func TestRaterBenchBooksAndCopies(t *testing.T) {
	c := RaterCmd{Events: 3000, Customers: 10, Rounds: 2, Dir: t.TempDir()}
	r, err := c.Measure(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 3 {
		t.Fatalf("%+v", r)
	}
	for _, s := range r.Rows {
		if len(s.PerSecond) != c.Rounds || median(s.PerSecond) <= 0 {
			t.Errorf("%+v", s)
		}
	}
	var text bytes.Buffer
	if err := r.Print(&text); err != nil || !strings.Contains(text.String(), "rater") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestRaterFlagsHaveBounds(t *testing.T) {
	for _, bad := range []RaterCmd{{Customers: 1, Rounds: 1}, {Events: 1, Rounds: 1}, {Events: 1, Customers: 1}} {
		if _, err := bad.Measure(t.Context(), t.Output()); err == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}
