package stripegw

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/webhook"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Verdict says how a check went.
type Verdict string

// The verdicts.
const (
	Good Verdict = "ok"
	Note Verdict = "note" // worth a look, and not wrong by itself
	Bad  Verdict = "wrong"
)

// Finding is what a check found.
type Finding struct {
	Verdict Verdict
	What    string // a word
	Text    string
}

// CheckInput says what is expected.
type CheckInput struct {
	Endpoint string   // where events must be sent: https://api.example.com/hooks/stripe; "" = not known
	Events   []string // types that must be sent
	Reach    bool     // try the address itself, as Stripe would
	Now      time.Time
}

// Bounds of checking.
const (
	reachLimit  = 15 * time.Second
	checkEvents = 72 * time.Hour // whose delivery is looked at
)

// CheckType is of the event that a check sends to the address: nobody handles it, so that it is stored and ignored.
const CheckType = "millrace.check"

// Check asks Stripe, and the address that events are sent to, whether everything fits.
func (g *Gateway) Check(ctx context.Context, in CheckInput) []Finding {
	k := &checks{g: g, in: in}
	k.account(ctx)
	k.endpoints(ctx)
	k.signatures()
	if in.Reach && in.Endpoint != "" {
		k.reach(ctx)
	}
	k.deliveries(ctx)
	return k.found
}

type checks struct {
	g     *Gateway
	in    CheckInput
	found []Finding
}

func (k *checks) say(v Verdict, what, format string, args ...any) {
	k.found = append(k.found, Finding{v, what, fmt.Sprintf(format, args...)})
}

// failed says what Stripe answered, in the words that are for operators.
func (k *checks) failed(what string, err error) {
	f := fault.Of(err)
	text := f.Message
	if f.Cause != nil {
		text = f.Cause.Error()
	}
	k.say(Bad, what, "%s", text)
}

func (k *checks) account(ctx context.Context) {
	mode := "test mode: no money moves"
	if !k.g.Test() {
		mode = "live mode: money moves"
	}
	a, err := k.g.account(ctx)
	if err != nil {
		k.failed("account", err)
		return
	}
	k.say(Good, "account", "%s %q, %s, %s", a.id, a.name, a.country, mode)
	switch {
	case a.version == stripe.APIVersion:
		k.say(Good, "api version", "%s, as it must be", a.version)
	case a.version == "":
		k.say(Note, "api version", "%s is asked for; the answer does not say which one it is", stripe.APIVersion)
	default:
		k.say(Bad, "api version", "%s is asked for, and Stripe answers in %s", stripe.APIVersion, a.version)
	}
	if !k.g.Test() && !a.charges {
		k.say(Bad, "charges", "this account may not charge anybody yet: finish its set-up in Stripe's pages")
	}
}

func (k *checks) endpoints(ctx context.Context) {
	list, err := k.g.endpoints(ctx)
	if err != nil {
		k.failed("endpoint", err)
		return
	}
	if k.in.Endpoint == "" {
		for _, e := range list {
			k.say(Note, "endpoint", "%s sends version %s to %s; give --public-url to check it", e.id, e.version, e.url)
		}
		k.say(Bad, "endpoint", "where events are to be sent is not known: give --public-url")
		return
	}
	ours := 0
	for _, e := range list {
		if strings.TrimSuffix(e.url, "/") == k.in.Endpoint {
			ours++
			k.endpoint(e)
		}
	}
	switch {
	case ours == 0:
		k.say(Bad, "endpoint", "Stripe sends nothing to %s: make an endpoint for it with API version %s and these events: %s", k.in.Endpoint, stripe.APIVersion, strings.Join(k.in.Events, ", "))
	case ours > 1:
		k.say(Note, "endpoint", "%d endpoints lead to the same address: every event comes so often", ours)
	}
}

func (k *checks) endpoint(e endpoint) {
	fits := true
	wrong := func(format string, args ...any) { fits = false; k.say(Bad, "endpoint", format, args...) }
	if !e.on {
		wrong("%s is disabled: enable it in Stripe's pages", e.id)
	}
	switch e.version {
	case stripe.APIVersion:
	case "":
		wrong("%s sends whatever version the account has: make it anew with API version %s", e.id, stripe.APIVersion)
	default:
		wrong("%s sends API version %s, and every event is refused: make it anew with %s", e.id, e.version, stripe.APIVersion)
	}
	var missing []string
	for _, t := range k.in.Events {
		if !slices.Contains(e.events, t) && !slices.Contains(e.events, "*") {
			missing = append(missing, t)
		}
	}
	if len(missing) > 0 {
		wrong("%s does not send %s", e.id, strings.Join(missing, ", "))
	}
	if fits {
		k.say(Good, "endpoint", "%s sends all %d types of events to %s, version %s", e.id, len(k.in.Events), e.url, e.version)
	}
}

// probe is an event of ours, signed as Stripe would.
func (k *checks) probe(secret string) (body []byte, signature string) {
	body = fmt.Appendf(nil, `{"id":"evt_check_%s","object":"event","api_version":%q,"created":%d,"livemode":%t,"type":%q,"data":{"object":{"id":"check","object":"check"}}}`,
		ids.New(), stripe.APIVersion, k.in.Now.Unix(), k.g.live, CheckType)
	return body, webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: body, Secret: secret}).Header
}

// signatures tries each secret, and one that nobody has.
func (k *checks) signatures() {
	body, forged := k.probe("whsec_nobody_has_this_one")
	if _, err := k.g.Parse(body, forged); !fault.Is(err, fault.Unauthenticated) {
		k.say(Bad, "signature", "a forged event is not refused")
		return
	}
	for i, s := range k.g.webhooks {
		body, signature := k.probe(string(s))
		if _, err := k.g.Parse(body, signature); err != nil {
			k.failed("signature", err)
			return
		}
		if i == 0 && !strings.HasPrefix(string(s), "whsec_") {
			k.say(Note, "signature", "the secret does not begin with whsec_, as Stripe's do")
		}
	}
	k.say(Good, "signature", "events signed with the %d configured secret(s) are believed, others are not; whether Stripe has the same one, only its next event shows", len(k.g.webhooks))
}

// reach sends two events to the address: one that nobody signed, and one that is signed with the first secret.
func (k *checks) reach(ctx context.Context) {
	client := &http.Client{Timeout: reachLimit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	body, signature := k.probe(string(k.g.webhooks[0]))
	for _, c := range []struct {
		signature string
		want      int
		otherwise string
	}{
		{"t=1,v1=00", http.StatusUnauthorized, "it does not refuse a forged event: is this really Millrace, with Stripe's secrets?"},
		{signature, http.StatusOK, "it does not take an event that is signed with the configured secret: it has another secret, or another mode"},
	} {
		status, to, err := post(ctx, client, k.in.Endpoint, body, c.signature)
		switch {
		case err != nil:
			k.say(Bad, "address", "%s cannot be reached from here: %v", k.in.Endpoint, err)
			return
		case status/100 == 3:
			k.say(Bad, "address", "%s redirects to %s: Stripe follows no redirect, so no event arrives", k.in.Endpoint, to)
			return
		case status != c.want:
			k.say(Bad, "address", "%s answers %d: %s", k.in.Endpoint, status, c.otherwise)
			return
		}
	}
	k.say(Good, "address", "%s refuses a forged event, takes a signed one and does not redirect", k.in.Endpoint)
}

func post(ctx context.Context, client *http.Client, url string, body []byte, signature string) (status int, to string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("Stripe-Signature", signature)
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	return resp.StatusCode, resp.Header.Get("Location"), nil
}

func (k *checks) deliveries(ctx context.Context) {
	switch n, err := k.g.undelivered(ctx, k.in.Now.Add(-checkEvents)); {
	case err != nil:
		k.failed("deliveries", err)
	case n > 0:
		k.say(Note, "deliveries", "%d or more events of the last 72 hours were not taken at once; Millrace looks them up every hour", n)
	default:
		k.say(Good, "deliveries", "every event of the last 72 hours was taken")
	}
}
