package gwtest_test

import (
	"strings"
	"testing"
	"time"

	"millrace/billing/stripegw"
)

// What `millrace check stripe` asks is taken by Stripe's own description of its API.
func TestTheShapeOfStripesAccount(t *testing.T) {
	g := gateway(t, fakeKey, startMock(t), 1000)
	found := g.Check(t.Context(), stripegw.CheckInput{Endpoint: "https://api.example.com/hooks/stripe", Events: []string{"invoice.paid"}, Now: time.Now()})
	said := map[string]bool{}
	for _, f := range found {
		said[f.What] = true
		if f.Verdict == stripegw.Bad && !strings.HasPrefix(f.Text, "Stripe sends nothing to") {
			t.Errorf("%+v", f)
		}
	}
	for _, what := range []string{"account", "endpoint", "signature", "deliveries"} {
		if !said[what] {
			t.Errorf("nothing about %s: %+v", what, found)
		}
	}
}
