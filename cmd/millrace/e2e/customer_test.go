package e2e

import (
	"context"
	"net/http"
	"testing"

	"millrace/api/control"
	"millrace/cmd/millrace/trial"
	"millrace/internal/ids"
)

// customer is an organization with a key and some credit.
type customer struct {
	desk    trial.Control
	org     string
	project string
	key     control.Key
	secret  string
	url     string
	model   string
}

// deskOf is the control API of an `up`.
func deskOf(u *trial.Up) trial.Control {
	return trial.Control{URL: u.Ready.URL, Token: u.Ready.AdminToken}
}

// newCustomer makes a customer of an `up`, with so many USD of credit.
func newCustomer(t testing.TB, u *trial.Up, usd string) *customer {
	t.Helper()
	return openAccount(t, &customer{desk: deskOf(u), url: u.Ready.URL, model: u.Ready.Models[0]}, usd)
}

// openAccount makes what a customer needs, through the control API.
func openAccount(t testing.TB, c *customer, usd string) *customer {
	t.Helper()
	var org control.Org
	c.call(t, http.MethodPost, "/orgs", map[string]any{"name": t.Name()}, &org)
	c.org = org.ID
	var projects control.Page[control.Project]
	c.call(t, http.MethodGet, "/orgs/"+c.org+"/projects", nil, &projects)
	c.project = projects.Data[0].ID
	if usd != "" {
		c.call(t, http.MethodPost, "/orgs/"+c.org+"/grants", map[string]any{"amount_usd": usd, "kind": "promotional", "reason": "a test"}, nil)
	}
	made := c.newKey(t, nil)
	c.key, c.secret = made.Key, made.Secret
	return c
}

// newKey makes a further key; more may set what a key can have.
func (c *customer) newKey(t testing.TB, more map[string]any) (made control.CreatedKey) {
	t.Helper()
	body := map[string]any{"name": "key", "project_id": c.project}
	for k, v := range more {
		body[k] = v
	}
	c.call(t, http.MethodPost, "/orgs/"+c.org+"/keys", body, &made)
	return made
}

func (c *customer) call(t testing.TB, method, path string, in, out any) {
	t.Helper()
	if err := c.desk.Do(context.Background(), method, path, in, out); err != nil {
		t.Fatal(err)
	}
}

// chat asks as this customer.
func (c *customer) chat(a trial.Ask) trial.Answer {
	if a.Model == "" {
		a.Model = c.model
	}
	return trial.Chat(context.Background(), c.url, c.secret, a)
}

// must asks and wants the whole answer.
func (c *customer) must(t testing.TB, a trial.Ask) trial.Answer {
	t.Helper()
	got := c.chat(a)
	if !got.Whole {
		t.Fatalf("%d: %v: %s", got.Status, got.Err, got.Text)
	}
	return got
}

// bill is the request as it was rated.
func (c *customer) bill(t testing.TB, request ids.ID) (r control.Request) {
	t.Helper()
	eventually(t, "the request is rated", func() bool {
		return c.desk.Do(context.Background(), http.MethodGet, "/orgs/"+c.org+"/requests/"+ids.Format(ids.Request, request), nil, &r) == nil
	})
	return r
}

func (c *customer) balance(t testing.TB) control.Balance {
	t.Helper()
	var org control.Org
	c.call(t, http.MethodGet, "/orgs/"+c.org, nil, &org)
	return *org.Balance
}

// used is everything that was rated in the last 30 days.
func (c *customer) used(t testing.TB) (total control.UsageRow) {
	t.Helper()
	var report control.UsageReport
	c.call(t, http.MethodGet, "/orgs/"+c.org+"/usage", nil, &report)
	if len(report.Data) > 0 {
		total = report.Data[0]
	}
	return total
}

// agrees checks a bill against what the client was told.
func agrees(t testing.TB, got trial.Answer, bill control.Request) {
	t.Helper()
	u := got.Usage
	if u == nil {
		t.Fatal("the answer has no usage")
	}
	if prompt := bill.Tokens.Input + bill.Tokens.Cached; prompt != u.Prompt || bill.Tokens.Cached != u.Details.Cached || bill.Tokens.Output != u.Completion || bill.Ending != "complete" {
		t.Errorf("billed %+v (%s), the client was told %+v", bill.Tokens, bill.Ending, *u)
	}
}
