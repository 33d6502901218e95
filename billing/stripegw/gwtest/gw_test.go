package gwtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/billing/stripefake"
	"millrace/billing/stripegw"
	"millrace/billing/stripegw/gwtest"
	"millrace/billing/topup"
	"millrace/internal/clock"
	"millrace/internal/ids"
)

const (
	fakeKey = "sk_test_0123456789abcdef"
	secret  = "whsec_0123456789abcdef"
	keyEnv  = "MILLRACE_STRIPE_TEST_KEY"
)

func gateway(t *testing.T, key, at string, pace int) *stripegw.Gateway {
	t.Helper()
	g, err := stripegw.New(stripegw.Config{Key: stripegw.Secret(key), Webhooks: []stripegw.Secret{secret}, URL: at, Pace: pace})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTheFake(t *testing.T) {
	fake, err := stripefake.New(stripefake.Config{Clock: clock.System, Key: fakeKey, Secret: secret, PageURL: "http://pay.example"})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(fake.API())
	t.Cleanup(api.Close)
	g := gateway(t, fakeKey, api.URL, 1000)
	pay := func(t *testing.T, session, number string) {
		t.Helper()
		if problem := fake.Pay(session, stripefake.Way{Number: number, Confirmed: true}); problem != "" {
			t.Fatal(problem)
		}
	}
	numbers := map[string]string{gwtest.GoodCard: stripefake.CardGood, gwtest.DecliningCard: stripefake.CardDeclinesKept, gwtest.AuthCard: stripefake.CardAuthAlways}
	gwtest.Run(t, gwtest.Provider{Gateway: g,
		Keep: func(t *testing.T, customer, card string) string {
			t.Helper()
			s, err := g.OpenCheckout(t.Context(), topup.Checkout{Key: ids.New().String(), Customer: customer, Done: "http://x.example", Back: "http://x.example"})
			if err != nil {
				t.Fatal(err)
			}
			pay(t, s.ID, numbers[card])
			if s, err = g.Session(t.Context(), s.ID); err != nil || s.Card == nil {
				t.Fatalf("%+v, %v", s, err)
			}
			return s.Card.Method
		},
		Refund: func(t *testing.T, payment string, cents int64) {
			t.Helper()
			if err := fake.Refund(payment, cents); err != nil {
				t.Fatal(err)
			}
		},
		Pay: func(t *testing.T, session string) { t.Helper(); pay(t, session, stripefake.CardGood) }})
}

// Stripe's own description of its API, of the version that we speak: it refuses a parameter that does not exist. It runs
// where it is built already, and builds it in a slow run.
func TestTheShapeOfStripe(t *testing.T) {
	g := gateway(t, fakeKey, startMock(t), 1000)
	gwtest.Run(t, gwtest.Provider{Gateway: g, Shape: true, Keep: func(*testing.T, string, string) string { return "pm_card_visa" }})
}

func startMock(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	built, _ := filepath.Glob(filepath.Join(root, ".cache", "tools", "stripe-mock@*")) // a good pattern
	if len(built) == 0 && os.Getenv("MILLRACE_SLOW") == "" {
		t.Skip("stripe-mock is not built: tools/tool stripe-mock, or MILLRACE_SLOW=1")
	}
	binary, err := exec.CommandContext(t.Context(), filepath.Join(root, "tools", "tool"), "stripe-mock").Output()
	if err != nil {
		t.Fatalf("building stripe-mock: %v", err)
	}
	api, other := freePort(t), freePort(t) // it opens TLS on every address unless it is told not to
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, strings.TrimSpace(string(binary)), "-http-addr", api, "-https-addr", other)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", api)
		if err == nil {
			_ = c.Close()
			return "http://" + api
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Stripe itself, where a test account's key is given.
func TestStripeItself(t *testing.T) {
	key := os.Getenv(keyEnv)
	if key == "" {
		t.Skip(keyEnv + " is not set")
	}
	if !strings.HasPrefix(key, "sk_test_") {
		t.Fatal(keyEnv + " must be a test account's secret key (sk_test_…)")
	}
	s := stripe{key}
	tokens := map[string]string{gwtest.GoodCard: "pm_card_visa", gwtest.DecliningCard: "pm_card_chargeCustomerFail", gwtest.AuthCard: "pm_card_authenticationRequired"}
	gwtest.Run(t, gwtest.Provider{Gateway: gateway(t, key, "", 0),
		Keep: func(t *testing.T, customer, card string) string {
			t.Helper()
			return s.post(t, "/v1/payment_methods/"+tokens[card]+"/attach", url.Values{"customer": {customer}})
		},
		Refund: func(t *testing.T, payment string, cents int64) {
			t.Helper()
			s.post(t, "/v1/refunds", url.Values{"payment_intent": {payment}, "amount": {strconv.FormatInt(cents, 10)}})
		}})
}

// stripe does what Millrace does not: it keeps a card without a page, and refunds.
type stripe struct{ key string }

func (s stripe) post(t *testing.T, path string, form url.Values) (id string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.stripe.com"+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Header.Set("Stripe-Version", stripefake.APIVersion)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		ID string `json:"id"`
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(raw, &out) != nil {
		t.Fatal(fmt.Sprint(resp.StatusCode, " ", string(raw), err))
	}
	return out.ID
}
