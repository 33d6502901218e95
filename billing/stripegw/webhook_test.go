package stripegw_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v76/webhook"

	"millrace/billing/stripegw"
	"millrace/internal/fault"
)

const (
	key    = "sk_test_0123456789abcdef"
	secret = "whsec_0123456789abcdef"
	before = "whsec_fedcba9876543210"
)

func gateway(t *testing.T) *stripegw.Gateway {
	t.Helper()
	g, err := stripegw.New(stripegw.Config{Key: key, Webhooks: []stripegw.Secret{secret, before}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func body(version, mode, more string) string {
	return `{"id":"evt_1","object":"event","api_version":"` + version + `","created":1700000000,"livemode":` + mode + more + `,"type":"charge.refunded","data":{"object":{"id":"ch_1","object":"charge"}}}`
}

func sign(text, with string, at time.Time) string {
	return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(text), Secret: with, Timestamp: at}).Header
}

func TestOnlySignedEventsOfOurVersionAreBelieved(t *testing.T) {
	g, good, now := gateway(t), body("2023-10-16", "false", ""), time.Now()
	for name, c := range map[string]struct {
		text, signature string
		kind            fault.Kind
	}{
		"another secret":     {good, sign(good, "whsec_ffffffffffffffff", now), fault.Unauthenticated},
		"an empty secret":    {good, sign(good, "", now), fault.Unauthenticated},
		"no signature":       {good, "", fault.Unauthenticated},
		"nonsense":           {good, "t=1,v1=zz", fault.Unauthenticated},
		"an old signature":   {good, sign(good, secret, now.Add(-6*time.Minute)), fault.Unauthenticated},
		"a changed body":     {strings.Replace(good, "ch_1", "ch_2", 1), sign(good, secret, now), fault.Unauthenticated},
		"a later version":    {body("2025-03-31.basil", "false", ""), sign(body("2025-03-31.basil", "false", ""), secret, now), fault.Invalid},
		"a live event":       {body("2023-10-16", "true", ""), sign(body("2023-10-16", "true", ""), secret, now), fault.Invalid},
		"another account":    {body("2023-10-16", "false", `,"account":"acct_1"`), sign(body("2023-10-16", "false", `,"account":"acct_1"`), secret, now), fault.Invalid},
		"no event":           {"[]", sign("[]", secret, now), fault.Invalid},
		"about nothing":      {`{"id":"evt_1","api_version":"2023-10-16","livemode":false}`, sign(`{"id":"evt_1","api_version":"2023-10-16","livemode":false}`, secret, now), fault.Invalid},
		"an empty signature": {good, "t=,v1=", fault.Unauthenticated},
	} {
		if e, err := g.Parse([]byte(c.text), c.signature); !fault.Is(err, c.kind) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	for _, with := range []string{secret, before} {
		e, err := g.Parse([]byte(good), sign(good, with, now))
		if err != nil || e.ID != "evt_1" || e.Type != "charge.refunded" || e.Object != "ch_1" || string(e.Payload) != good {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

func TestAConfigurationThatBelievesAnybodyIsRefused(t *testing.T) {
	for name, c := range map[string]stripegw.Config{
		"no key": {Webhooks: []stripegw.Secret{secret}}, "a publishable key": {Key: "pk_test_0123456789abcdef", Webhooks: []stripegw.Secret{secret}},
		"no secret": {Key: key}, "an empty secret": {Key: key, Webhooks: []stripegw.Secret{""}}, "an empty second one": {Key: key, Webhooks: []stripegw.Secret{secret, ""}},
	} {
		if _, err := stripegw.New(c); err == nil || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A body that nobody signed never gets through, whatever it is and whatever stands in the header.
func FuzzParse(f *testing.F) {
	g, err := stripegw.New(stripegw.Config{Key: key, Webhooks: []stripegw.Secret{secret}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(body("2023-10-16", "false", "")), "t=1700000000,v1=00")
	f.Add([]byte(`{}`), "")
	f.Fuzz(func(t *testing.T, text []byte, signature string) {
		if e, err := g.Parse(text, signature); err == nil {
			t.Errorf("believed %+v", e)
		}
	})
}
