package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/api/control"
	"millrace/cmd/millrace/trial"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// A hold that is used up: output alone costs, 1,000 nano-USD a token, and so many tokens are asked for and generated.
const (
	holdTokens = 100
	holdNano   = holdTokens * 1000
	holds      = 10
	crowd      = 200
)

var capUSD = money.Nano(holds * holdNano).String()

// sellOutput makes a model whose output alone costs, on an engine that runs already.
func sellOutput(t *testing.T, desk trial.Control) (model string) {
	t.Helper()
	_, url := someonesEngine(t)
	model = "trial/output-" + ids.New().String()[30:]
	ctx := t.Context()
	var made control.Model
	if err := desk.Do(ctx, http.MethodPost, "/models", map[string]any{"name": model, "context_tokens": 4096}, &made); err != nil {
		t.Fatal(err)
	}
	price := control.PerMillionUSD{Input: "0", Cached: "0", CacheWrite: "0", Output: "1", Reasoning: "1", Image: "0", Audio: "0", Request: "0"}
	if err := desk.Do(ctx, http.MethodPost, "/models/"+made.ID+"/prices", map[string]any{"usd_per_million": price, "confirm": model}, nil); err != nil {
		t.Fatal(err)
	}
	unit := map[string]any{"name": model, "url": url, "engine": "sim", "model": model, "upstream_model": "tiny"}
	if err := desk.Do(ctx, http.MethodPost, "/units", unit, nil); err != nil {
		t.Fatal(err)
	}
	return model
}

// capped sets a cap of ten holds on the customer's key.
func (c *customer) capped(t *testing.T) {
	t.Helper()
	c.call(t, http.MethodPut, "/orgs/"+c.org+"/caps/key/"+c.key.ID+"/total", map[string]string{"cap_usd": capUSD}, nil)
}

// spent is where the cap stands.
func (c *customer) spent(t *testing.T) control.Cap {
	t.Helper()
	var page control.Page[control.Cap]
	c.call(t, http.MethodGet, "/orgs/"+c.org+"/caps", nil, &page)
	if len(page.Data) != 1 {
		t.Fatalf("%+v", page)
	}
	spent := page.Data[0]
	if spent.Settled.Nano+spent.Outstanding.Nano > holds*holdNano {
		t.Errorf("the cap is overdrawn: %+v", spent)
	}
	return spent
}

// settledWhole waits until all ten holds are charged, to the nano-dollar.
func (c *customer) settledWhole(t *testing.T) {
	t.Helper()
	eventually(t, "the whole cap is charged", func() bool { return c.spent(t).Settled.Nano == holds*holdNano })
	if spent := c.spent(t); spent.Outstanding.Nano != 0 {
		t.Errorf("something is outstanding beyond the cap: %+v", spent)
	}
	if used := c.used(t); used.Charged.Nano != holds*holdNano || used.Overrun.Nano != 0 || used.Tokens.Output != holds*holdTokens {
		t.Errorf("usage: %+v", used)
	}
}

// rush asks at once, in turn at each of the addresses, and gives the answers.
func (c *customer) rush(n int, urls ...string) []trial.Answer {
	answers := make([]trial.Answer, n)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = trial.Chat(context.Background(), urls[i%len(urls)], c.secret,
				trial.Ask{Model: c.model, Prompt: "spend it", MaxTokens: holdTokens, Stream: i%4 < 2})
		})
	}
	wg.Wait()
	return answers
}

// served counts whole answers. Every other one must be a clear refusal, or, where unsure says so, a 503.
func served(t *testing.T, answers []trial.Answer, unsure bool) (n int) {
	t.Helper()
	for _, a := range answers {
		switch {
		case a.Whole:
			n++
			if a.Usage.Completion != holdTokens {
				t.Errorf("an answer of %d tokens", a.Usage.Completion)
			}
		case a.Status == http.StatusPaymentRequired:
			outOfCredit(t, a)
		case !unsure || a.Status != http.StatusServiceUnavailable:
			t.Errorf("%d %v %s", a.Status, a.Err, a.Text)
		}
	}
	return n
}

// outOfCredit checks what a client is told: a body that a person understands and a code and header that keep SDKs from
// trying again.
func outOfCredit(t *testing.T, a trial.Answer) {
	t.Helper()
	var body struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(a.Text, &body); err != nil || body.Error.Type != "insufficient_quota" || body.Error.Code != "insufficient_quota" || body.Error.Message == "" {
		t.Errorf("%v: %s", err, a.Text)
	}
	if a.Header.Get("X-Should-Retry") != "false" || a.Header.Get("Retry-After") != "" {
		t.Errorf("headers: %v", a.Header)
	}
}

func TestACapOfTenHoldsServesTen(t *testing.T) {
	u := sharedUp(t)
	mine := newCustomer(t, u, "100")
	mine.model = sellOutput(t, deskOf(u))
	mine.capped(t)
	if n := served(t, mine.rush(crowd, mine.url), false); n != holds {
		t.Errorf("%d of %d were served, want %d", n, crowd, holds)
	}
	mine.settledWhole(t)
	if n := served(t, mine.rush(3, mine.url), false); n != 0 {
		t.Errorf("%d were served beyond the cap", n)
	}
}

// pausedValidity is how long a gateway of this test may admit without hearing from the database.
const pausedValidity = 5 * time.Second

// Two gateways, one of which is paused past its validity while it holds some of the money, with requests waiting at its
// door: nothing is spent twice, and everything can be spent once it is back.
func TestACapHoldsWithAPausedGateway(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	k, err := trial.StartCluster(ctx, trial.ClusterConfig{Binary: millrace, Dir: folder(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	token, err := k.Server.Tenants.CreateControlToken(ctx, tenants.System(), "test")
	if err != nil {
		t.Fatal(err)
	}
	gateways := make([]*trial.Gateway, 2)
	for i := range gateways {
		if gateways[i], err = k.StartGateway(ctx, "--validity", pausedValidity.String()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = gateways[i].Kill() })
	}
	a, b := gateways[0], gateways[1]
	mine := &customer{desk: trial.Control{URL: k.Server.PublicURL(), Token: token}, url: a.URL}
	mine.model = sellOutput(t, mine.desk)
	openAccount(t, mine, "100")

	t.Run("both at work", func(t *testing.T) {
		mine.capped(t)
		eventually(t, "both know the model and the key", func() bool { return served(t, mine.rush(2, a.URL, b.URL), true) > 0 })
		if n := served(t, mine.rush(crowd, a.URL, b.URL), false); n >= holds {
			t.Errorf("%d were served after the first", n)
		}
		mine.settledWhole(t)
	})
	t.Run("one paused", func(t *testing.T) {
		made := mine.newKey(t, nil)
		mine.call(t, http.MethodDelete, "/orgs/"+mine.org+"/caps/key/"+mine.key.ID+"/total", nil, nil)
		mine.key, mine.secret = made.Key, made.Secret
		mine.capped(t)
		time.Sleep(enforced) // the promise: a cap acts on every gateway within this time, not at once
		n := served(t, mine.rush(3, a.URL), false)
		if err := a.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan []trial.Answer, 1)
		go func() { waiting <- mine.rush(20, a.URL) }()
		n += served(t, mine.rush(crowd, b.URL), false)
		if n > holds {
			t.Errorf("%d are served", n)
		}
		mine.spent(t)
		time.Sleep(pausedValidity + time.Second)
		n += served(t, mine.rush(3, b.URL), false)
		if err := a.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		n += served(t, <-waiting, true)
		t.Logf("%d served when the gateway is back", n)
		for deadline := time.Now().Add(soon); n < holds && time.Now().Before(deadline); {
			n += served(t, mine.rush(4, a.URL, b.URL), true)
		}
		if n != holds {
			t.Errorf("%d are served, want %d", n, holds)
		}
		if over := served(t, mine.rush(20, a.URL, b.URL), true); over != 0 {
			t.Errorf("%d are served beyond the cap", over)
		}
		spent := mine.spent(t)
		eventually(t, "everything is rated", func() bool { spent = mine.spent(t); return spent.Settled.Nano == holds*holdNano })
		if used := mine.used(t); used.Charged.Nano != 2*holds*holdNano || used.Overrun.Nano != 0 {
			t.Errorf("usage: %+v", used)
		}
	})
}
