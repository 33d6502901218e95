package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"millrace/api/hooks"
	"millrace/billing/inbox"
	"millrace/billing/stripefake"
	"millrace/billing/stripegw"
	"millrace/internal/clock"
)

const (
	checkKey    = "sk_test_0123456789abcdef"
	checkSecret = "whsec_0123456789abcdef"
)

// box keeps what is delivered.
type box struct{ stored []inbox.Event }

func (b *box) Store(_ context.Context, _ inbox.Source, e inbox.Event) (bool, error) {
	b.stored = append(b.stored, e)
	return true, nil
}

func TestCheckStripe(t *testing.T) {
	fake, err := stripefake.New(stripefake.Config{Clock: clock.System, Key: checkKey, Secret: checkSecret, PageURL: "http://pay.example"})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(fake.API())
	t.Cleanup(api.Close)
	g, err := stripegw.New(stripegw.Config{Key: checkKey, Webhooks: []stripegw.Secret{checkSecret}, URL: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	stored := &box{}
	ours := httptest.NewServer(hooks.Handler(g, stored))
	t.Cleanup(ours.Close)
	moved := httptest.NewServer(http.RedirectHandler(ours.URL, http.StatusTemporaryRedirect))
	t.Cleanup(moved.Close)
	open := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // takes anything
	t.Cleanup(open.Close)

	run := func(c checkStripeCmd) (string, error) {
		var out strings.Builder
		c.StripeURL, c.out = api.URL, &out
		err := c.Run(t.Context())
		if strings.Contains(out.String(), "0123456789abcdef") {
			t.Errorf("a secret is printed:\n%s", out.String())
		}
		return out.String(), err
	}
	flags := func(key, secret string) stripeFlags { return stripeFlags{StripeKey: key, StripeWebhookSecret: secret} }
	good := flags(checkKey, checkSecret)
	var code exitCode

	if out, err := run(checkStripeCmd{}); err == nil || errors.As(err, &code) {
		t.Errorf("without a key: %v\n%s", err, out)
	}
	all := stripeEvents()
	for name, c := range map[string]struct {
		cmd     checkStripeCmd
		version string
		events  []string
		none    bool
		want    []string
		fine    bool
	}{
		"everything fits": {cmd: checkStripeCmd{stripeFlags: good, PublicURL: ours.URL}, events: all, fine: true,
			want: []string{`acct_test_millrace "Millrace test payments", US, test mode`, "2023-10-16, as it must be", "sends all", "does not redirect", "are believed, others are not"}},
		"every event":         {cmd: checkStripeCmd{stripeFlags: good, PublicURL: ours.URL + "/"}, events: []string{"*"}, fine: true},
		"not reached":         {cmd: checkStripeCmd{stripeFlags: good, PublicURL: open.URL, NoReach: true}, events: all, fine: true},
		"no endpoint":         {cmd: checkStripeCmd{stripeFlags: good, PublicURL: ours.URL}, none: true, want: []string{"Stripe sends nothing to " + ours.URL + "/hooks/stripe", "invoice.paid"}},
		"no address":          {cmd: checkStripeCmd{stripeFlags: good}, events: all, want: []string{"give --public-url"}},
		"another version":     {cmd: checkStripeCmd{stripeFlags: good, PublicURL: ours.URL}, version: "2025-03-31.basil", events: all, want: []string{"sends API version 2025-03-31.basil"}},
		"an event is missing": {cmd: checkStripeCmd{stripeFlags: good, PublicURL: ours.URL}, events: slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "invoice.paid" }), want: []string{"does not send invoice.paid\n"}},
		"another secret":      {cmd: checkStripeCmd{stripeFlags: flags(checkKey, "whsec_fedcba9876543210"), PublicURL: ours.URL}, events: all, want: []string{"answers 401"}},
		"another key":         {cmd: checkStripeCmd{stripeFlags: flags("sk_test_fedcba9876543210", checkSecret), PublicURL: ours.URL}, events: all, want: []string{"Invalid API Key"}},
		"a redirect":          {cmd: checkStripeCmd{stripeFlags: good, PublicURL: moved.URL}, events: all, want: []string{"redirects to"}},
		"believes anybody":    {cmd: checkStripeCmd{stripeFlags: good, PublicURL: open.URL}, events: all, want: []string{"does not refuse a forged event"}},
		"nobody there":        {cmd: checkStripeCmd{stripeFlags: good, PublicURL: "http://127.0.0.1:1"}, events: all, want: []string{"cannot be reached"}},
	} {
		t.Run(name, func(t *testing.T) {
			fake.Endpoint("https://elsewhere.example/hooks", "2020-08-27", []string{"charge.succeeded"}) // another program's
			if at := strings.TrimSuffix(c.cmd.PublicURL, "/"); at != "" && !c.none {
				fake.Endpoint(at+hooks.StripePath, c.version, c.events)
				defer fake.NoEndpoint(at + hooks.StripePath)
			}
			out, err := run(c.cmd)
			if fine := err == nil; fine != c.fine || !fine && !errors.As(err, &code) {
				t.Errorf("%v\n%s", err, out)
			}
			if strings.Contains(out, "wrong ") == c.fine {
				t.Errorf("\n%s", out)
			}
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("it does not say %q:\n%s", w, out)
				}
			}
		})
	}
	for _, e := range stored.stored {
		if e.Type != stripegw.CheckType {
			t.Errorf("stored %+v", e)
		}
	}
	if len(stored.stored) == 0 {
		t.Error("no signed event came")
	}
}
