package bench

import (
	"bytes"
	"strings"
	"testing"
)

func TestBooksBenchFillsAndMeasures(t *testing.T) {
	c := BooksCmd{Requests: 2003, Days: 2, Customers: 4, Samples: 2, Rated: 500, Dir: t.TempDir()}
	r, err := c.Measure(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Raters) != 2 || r.Raters[1].Requests != c.Requests || r.Raters[1].PerSecond <= 0 || len(r.Pages) < 15 || r.Bytes == 0 {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Pages {
		if p.P50 <= 0 || p.P95 < p.P50 || p.Max < p.P95 {
			t.Errorf("%+v", p)
		}
	}
	var text bytes.Buffer
	if err := r.Print(&text); err != nil || !strings.Contains(text.String(), "/billing/statement") {
		t.Errorf("%v\n%s", err, text.String())
	}
	for _, bad := range []BooksCmd{{Requests: 1, Days: 1, Customers: 1, Samples: 1, Rated: 1}, {Days: 1, Customers: 2, Samples: 1, Rated: 1},
		{Requests: 1, Days: 1, Customers: 2, Rated: 1}} {
		if _, err := bad.Measure(t.Context(), t.Output()); err == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}
