package control

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/billing/price"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

func draft(model ids.ID, at time.Time) price.Draft {
	d := price.Draft{Model: model, EffectiveAt: at, Prices: map[usage.Class]money.Pico{}}
	for c := range usage.NumClasses {
		d.Prices[c] = 150_000
	}
	d.Prices[usage.Requests] = 0
	return d
}

// A customer from nothing to a working key, as an operator's program does it.
func TestOnboarding(t *testing.T) {
	f := setup(t)
	var org Org
	f.want(f.send("POST", "/orgs", `{"name":"Acme","time_zone":"Asia/Kolkata","owner_email":"ann@acme.example"}`, "Idempotency-Key", "1"), 201, &org)
	if org.TimeZone != "Asia/Kolkata" || org.FailurePolicy != "delivered" || !strings.HasPrefix(org.ID, "org_") || org.Balance != nil {
		t.Errorf("made %+v", org)
	}
	var again Org
	f.want(f.send("POST", "/orgs", `{"name":"Acme","time_zone":"Asia/Kolkata","owner_email":"ann@acme.example"}`, "Idempotency-Key", "1"), 201, &again)
	if again.ID != org.ID {
		t.Errorf("a repetition made another: %s and %s", org.ID, again.ID)
	}
	var projects Page[Project]
	f.want(f.send("GET", "/orgs/"+org.ID+"/projects", ""), 200, &projects)
	var made CreatedKey
	a := f.send("POST", "/orgs/"+org.ID+"/keys", `{"name":"ci","project_id":"`+projects.Data[0].ID+`","limits":{"rpm":60}}`)
	f.want(a, 201, &made)
	if !strings.HasPrefix(made.Secret, made.Key.Prefix) || made.Key.Limits.RPM != 60 || made.Key.Status != "active" {
		t.Errorf("made %+v", made)
	}
	list := f.send("GET", "/orgs/"+org.ID+"/keys", "")
	if strings.Contains(string(list.body), made.Secret) || !strings.Contains(string(list.body), made.Key.ID) {
		t.Errorf("list %s", list.body)
	}
	var grant Grant
	f.want(f.send("POST", "/orgs/"+org.ID+"/grants", `{"amount_usd":"0.000000001","kind":"paid","reason":"r"}`, "Idempotency-Key", "2"), 201, &grant)
	if grant.Amount != (Amount{USD: "0.000000001", Nano: 1}) || grant.CreatedBy != "token:test" {
		t.Errorf("granted %+v", grant)
	}
	var grantAgain Grant
	f.want(f.send("POST", "/orgs/"+org.ID+"/grants", `{"amount_usd":"0.000000001","kind":"paid","reason":"r"}`, "Idempotency-Key", "2"), 201, &grantAgain)
	f.refused(f.send("POST", "/orgs/"+org.ID+"/grants", `{"amount_usd":"2","kind":"paid","reason":"r"}`, "Idempotency-Key", "2"), 409, "idempotency_key_reused", "idempotency_key")
	f.want(f.send("PUT", "/orgs/"+org.ID+"/credit-limit", `{"limit_usd":"12.5"}`), 204, nil)
	f.want(f.send("GET", "/orgs/"+org.ID, ""), 200, &org)
	if b := org.Balance; grantAgain != grant || b == nil || b.Paid.Nano != 1 || b.Available != (Amount{USD: "12.500000001", Nano: 12_500_000_001}) || org.CreditLimit.USD != "12.5" {
		t.Errorf("balance %+v, limit %+v", b, org.CreditLimit)
	}
	var revoked Key
	f.want(f.send("DELETE", "/orgs/"+org.ID+"/keys/"+made.Key.ID, ""), 200, &revoked)
	if revoked.Status != "revoked" {
		t.Errorf("revoked %+v", revoked)
	}
	var entries Page[AuditEntry]
	f.want(f.send("GET", "/orgs/"+org.ID+"/audit?limit=1", ""), 200, &entries)
	if e := entries.Data[0]; e.Action != "key.revoke" || e.Actor != "token:test" || e.IP == "" || !strings.HasPrefix(e.RequestID, "req_") {
		t.Errorf("audited %+v", e)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	f := setup(t)
	org, project := f.org("Acme")
	path := "/orgs/" + ids.Format(ids.Org, org.ID)
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		code, param              string
	}{
		{"unknown field", "POST", "/orgs", `{"name":"A","color":"red"}`, 400, "unknown_field", "color"},
		{"other case", "POST", "/orgs", `{"Name":"A","name":"B"}`, 400, "unknown_field", "Name"},
		{"missing field", "POST", "/orgs", `{}`, 400, "missing_field", "name"},
		{"unknown nested field", "POST", path + "/keys", `{"name":"k","project_id":"x","limits":{"rps":1}}`, 400, "unknown_field", "rps"},
		{"other type", "POST", "/models", `{"name":"m","context_tokens":"many"}`, 400, "invalid", "context_tokens"},
		{"not an object", "POST", "/orgs", `[1]`, 400, "invalid", ""},
		{"not JSON", "POST", "/orgs", `{"name":`, 400, "invalid", ""},
		{"two values", "POST", "/orgs", `{"name":"A"}{"name":"B"}`, 400, "invalid", ""},
		{"bad time", "POST", path + "/keys", `{"name":"k","project_id":"x","expires_at":"tomorrow"}`, 400, "invalid", ""},
		{"credit that ended", "POST", path + "/grants", `{"amount_usd":"1","kind":"paid","reason":"r","expires_at":"2020-01-01T00:00:00Z"}`, 400, "invalid", "expires_at"},
		{"a grant to the year 10000", "POST", path + "/grants", `{"amount_usd":"1","kind":"paid","reason":"r","expires_at":"9999-12-31T23:59:59-12:00"}`, 400, "invalid", "expires_at"},
		{"a contract to the year 10000", "POST", path + "/price-contracts", `{"book":"standard","ends_at":"9999-12-31T23:59:59-12:00"}`, 400, "invalid", "ends_at"},
		{"a key to the year 10000", "POST", path + "/keys", `{"name":"k","project_id":"` + ids.Format(ids.Project, project.ID) + `","expires_at":"9999-12-31T23:59:59-12:00"}`, 400, "invalid", "expires_at"},
		{"an endless raise", "PUT", path + "/caps/org/" + strings.TrimPrefix(path, "/orgs/") + "/month/raise", `{"to_usd":"1","for_hours":745}`, 400, "invalid", "for_hours"},
		{"a webhook in our network", "POST", path + "/webhooks", `{"url":"https://169.254.169.254/"}`, 400, "invalid", "url"},
		{"a webhook without TLS", "POST", path + "/webhooks", `{"url":"http://acme.example"}`, 400, "invalid", "url"},
		{"unknown parameter", "GET", "/orgs?sort=name", "", 400, "unknown_parameter", "sort"},
		{"parameter twice", "GET", "/orgs?limit=1&limit=2", "", 400, "invalid", "limit"},
		{"limit not a number", "GET", "/orgs?limit=ten", "", 400, "invalid", "limit"},
		{"limit too large", "GET", "/orgs?limit=201", "", 400, "invalid", "limit"},
		{"foreign cursor", "GET", "/orgs?cursor=key_1", "", 400, "invalid", "cursor"},
		{"body where none is taken", "PUT", path + "/suspension", `{}`, 400, "invalid", ""},
		{"malformed id", "GET", "/orgs/42", "", 404, "not_found", ""},
		{"unknown id", "GET", "/orgs/" + ids.Format(ids.Org, ids.New()), "", 404, "not_found", ""},
		{"unknown path", "GET", "/nothing", "", 404, "unknown_path", ""},
		{"unknown method", "DELETE", "/orgs", "", 405, "method_not_allowed", ""},
		{"amount with ten decimals", "PUT", path + "/caps/org/" + ids.Format(ids.Org, org.ID) + "/month", `{"cap_usd":"0.0000000001"}`, 400, "invalid", "cap_usd"},
		{"unknown scope", "PUT", path + "/caps/team/" + ids.Format(ids.Org, org.ID) + "/month", `{"cap_usd":"1"}`, 404, "not_found", "scope"},
		{"unknown period", "PUT", path + "/caps/org/" + ids.Format(ids.Org, org.ID) + "/year", `{"cap_usd":"1"}`, 404, "not_found", "period"},
		{"another org's cap", "PUT", path + "/caps/org/" + ids.Format(ids.Org, ids.New()) + "/month", `{"cap_usd":"1"}`, 404, "not_found", "scope"},
		{"no such cap", "DELETE", path + "/caps/org/" + ids.Format(ids.Org, org.ID) + "/month", "", 404, "not_found", ""},
		{"a price without a class", "POST", "/models/" + ids.Format(ids.Model, ids.New()) + "/prices", `{"usd_per_million":{"input":"1"}}`, 400, "invalid", "usd_per_million.cached"},
		{"usage between quarters", "GET", "/usage?from=2026-11-01T00:01:00Z", "", 400, "invalid", "from"},
		{"usage by hour for a year", "GET", "/usage?from=2025-11-01T00:00:00Z&step=hour", "", 400, "invalid", "from"},
		{"usage backwards", "GET", "/usage?from=2026-12-01T00:00:00Z&to=2026-11-01T00:00:00Z", "", 400, "invalid", "from"},
		{"usage of all by key", "GET", "/usage?group_by=key", "", 400, "invalid", "group_by"},
		{"usage in no zone", "GET", "/usage?time_zone=Mars", "", 400, "invalid", "time_zone"},
		{"usage of nobody", "GET", "/orgs/" + ids.Format(ids.Org, ids.New()) + "/usage", "", 404, "not_found", ""},
		{"ledger of ten years", "GET", path + "/ledger?from=2016-01-01T00:00:00Z", "", 400, "invalid", "from"},
		{"link for ever", "POST", "/sign-in-links", `{"email":"ann@acme.example","valid_seconds":9223372036854775807}`, 400, "invalid", "valid_seconds"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := *f
			f.t = t
			headers := []string{}
			if strings.HasSuffix(tt.path, "/grants") {
				headers = []string{headerIdempotencyKey, "k"}
			}
			f.refused(f.send(tt.method, tt.path, tt.body, headers...), tt.status, tt.code, tt.param)
		})
	}
}

func TestHeaders(t *testing.T) {
	f := setup(t)
	org, _ := f.org("Acme")
	grants := "/orgs/" + ids.Format(ids.Org, org.ID) + "/grants"
	f.refused(f.send("POST", "/orgs", `{"name":"A"}`, "Content-Type", "text/plain"), 415, "unsupported_media_type", "")
	f.refused(f.send("POST", grants, `{"amount_usd":"1","kind":"paid","reason":"r"}`), 400, "invalid", headerIdempotencyKey)
	f.refused(f.send("POST", "/models", `{"name":"m","context_tokens":1}`, headerIdempotencyKey, "k"), 400, "invalid", headerIdempotencyKey)
	f.refused(f.send("POST", "/orgs", `{"name":"`+strings.Repeat("a", maxBodyBytes)+`"}`), 413, "too_large", "")
	f.want(f.send("POST", "/orgs", `{"name":"A"}`, "Content-Type", "application/json; charset=utf-8", "Authorization", "bearer "+f.token), 201, nil)
}

// X-Forwarded-For is the client's word and must not reach the audit log.
func TestForwardedAddressesAreNotBelieved(t *testing.T) {
	f := setup(t)
	var org Org
	f.want(f.send("POST", "/orgs", `{"name":"A"}`, "X-Forwarded-For", "203.0.113.9", "X-Real-Ip", "203.0.113.9"), 201, &org)
	var entries Page[AuditEntry]
	f.want(f.send("GET", "/orgs/"+org.ID+"/audit", ""), 200, &entries)
	for _, e := range entries.Data {
		if ip := net.ParseIP(e.IP); ip == nil || !ip.IsLoopback() {
			t.Errorf("address %q", e.IP)
		}
	}
}

func TestPages(t *testing.T) {
	f := setup(t)
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		f.org(name)
	}
	var names []string
	cursor := ""
	for range 10 {
		var p Page[Org]
		f.want(f.send("GET", "/orgs?limit=2&cursor="+cursor, ""), 200, &p)
		for _, o := range p.Data {
			names = append(names, o.Name)
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	if got := strings.Join(names, ""); got != "EDCBA" {
		t.Errorf("got %s", got)
	}
	empty := f.send("GET", "/orgs?search=nobody", "")
	if got := strings.TrimSpace(string(empty.body)); got != `{"data":[]}` {
		t.Errorf("an empty list is %s", got)
	}
}

func TestCaps(t *testing.T) {
	f := setup(t)
	org, project := f.org("Acme")
	path := "/orgs/" + ids.Format(ids.Org, org.ID) + "/caps"
	one := path + "/project/" + ids.Format(ids.Project, project.ID) + "/month"
	var c Cap
	for _, usd := range []string{"250", "0.5"} {
		f.want(f.send("PUT", one, `{"cap_usd":"`+usd+`"}`), 200, &c)
		if c.Cap.USD != usd || c.Period != "month" || c.PeriodStart != time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) || !c.PeriodEnd.Equal(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("set %+v", c)
		}
	}
	var list Page[Cap]
	f.want(f.send("GET", path, ""), 200, &list)
	if len(list.Data) != 1 || list.Data[0].ScopeID != ids.Format(ids.Project, project.ID) {
		t.Errorf("list %+v", list)
	}
	f.want(f.send("DELETE", one, ""), 204, nil)
	f.refused(f.send("DELETE", one, ""), 404, "not_found", "")
}

func TestPrices(t *testing.T) {
	f := setup(t)
	var m Model
	f.want(f.send("POST", "/models", `{"name":"acme/m","context_tokens":4096}`), 201, &m)
	var p Price
	f.want(f.send("POST", "/models/"+m.ID+"/prices", `{"effective_at":"2027-01-01T00:00:00Z","usd_per_million":
		{"input":"0.15","cached":"0.03","cache_write":"0.15","output":"0.6","reasoning":"0.6","image":"0","audio":"0","request":"5000"}}`), 201, &p)
	if p.USDPerMillion != (PerMillionUSD{"0.15", "0.03", "0.15", "0.6", "0.6", "0", "0", "5000"}) || p.Book != "standard" {
		t.Errorf("made %+v", p)
	}
	var cancelled Price
	f.want(f.send("DELETE", "/prices/"+p.ID, ""), 200, &cancelled)
	if cancelled.CancelledAt == nil {
		t.Error("not cancelled")
	}
	var all Page[Price]
	f.want(f.send("GET", "/models/"+m.ID+"/prices", ""), 200, &all)
	if len(all.Data) != 1 || all.Data[0].ID != p.ID {
		t.Errorf("timeline %+v", all)
	}
}

// Terms come back as they were sent; what cannot be read of them is named.
func TestPriceTerms(t *testing.T) {
	f := setup(t)
	var m Model
	f.want(f.send("POST", "/models", `{"name":"acme/m","context_tokens":4096}`), 201, &m)
	const list = `{"input":"0.15","cached":"0.03","cache_write":"0.15","output":"0.6","reasoning":"0.6","image":"0","audio":"0","request":"0"}`
	const terms = `{"tiers":[{"above_prompt_tokens":1000,"usd_per_million":` + list + `}],"windows":[{"days":["sat","sun"],"from":"00:00","to":"24:00","percent":80}],"batch_percent":50,"priority_percent":150}`
	body := func(terms string) string { return `{"usd_per_million":` + list + `,"terms":` + terms + `}` }
	var p Price
	f.want(f.send("POST", "/models/"+m.ID+"/prices", body(terms)), 201, &p)
	if got, _ := json.Marshal(p.Terms); string(got) != terms {
		t.Errorf("%s", got)
	}
	for terms, param := range map[string]string{
		`{"tiers":[{"above_prompt_tokens":5,"usd_per_million":{"input":"1"}}]}`: "terms.tiers[0].usd_per_million.cached",
		`{"windows":[{"from":"1","to":"2","percent":5}]}`:                       "terms.windows[0]",
		`{"windows":[{"from":"02:00","to":"01:00","percent":5}]}`:               "windows",
		`{"priority_percent":0}`:                                                "priority_percent",
		`{"batch_percent":0}`:                                                   "batch_percent",
		`{"priority_percent":-5}`:                                               "priority_percent",
	} {
		f.refused(f.send("POST", "/models/"+m.ID+"/prices", body(terms)), 400, "invalid", param)
		f.refused(f.send("POST", "/models/"+m.ID+"/prices/preview", body(terms)), 400, "invalid", param)
	}
	f.refused(f.send("POST", "/models/"+m.ID+"/prices", body(`{"discount":1}`)), 400, "unknown_field", "discount")
	var preview PricePreview
	f.want(f.send("POST", "/models/"+m.ID+"/prices/preview", `{"usd_per_million":`+strings.ReplaceAll(list, "0.6", "6")+`}`), 200, &preview)
	if preview.Total.Requests != 0 || preview.Cost != nil || len(preview.Doubts) == 0 {
		t.Errorf("%+v", preview)
	}
}

func TestPriceContracts(t *testing.T) {
	f := setup(t)
	org, _ := f.org("Acme")
	path := "/orgs/" + ids.Format(ids.Org, org.ID) + "/price-contracts"
	var c PriceContract
	f.want(f.send("POST", path, `{"book":"standard","starts_at":"2027-01-01T00:00:00Z","ends_at":"2027-02-01T00:00:00Z","note":"Trial"}`), 201, &c)
	f.refused(f.send("POST", path, `{"book":"standard","starts_at":"2027-01-31T00:00:00Z"}`), 409, "contract_overlaps", "")
	f.refused(f.send("POST", path, `{"book":"standard","starts_at":"0001-01-01T00:00:00Z"}`), 400, "invalid", "starts_at")
	f.refused(f.send("POST", path, `{"book":"none","starts_at":"2028-01-01T00:00:00Z"}`), 409, "book_without_prices", "book")
	f.refused(f.send("PUT", path+"/"+c.ID+"/end", `{"ends_at":"0001-01-01T00:00:00Z"}`), 400, "invalid", "ends_at")
	var all Page[PriceContract]
	f.want(f.send("GET", path, ""), 200, &all)
	if len(all.Data) != 1 || all.Data[0].ID != c.ID || all.Data[0].Note != "Trial" || all.Data[0].EndsAt == nil {
		t.Errorf("%+v", all)
	}
}

func TestAPriceBeginsNowOrLater(t *testing.T) {
	f := setup(t)
	var m Model
	f.want(f.send("POST", "/models", `{"name":"acme/m","context_tokens":4096}`), 201, &m)
	const prices = `"usd_per_million":{"input":"0.15","cached":"0.03","cache_write":"0.15","output":"0.6","reasoning":"0.6","image":"0","audio":"0","request":"0"}`
	moment := func(at time.Time) string { return `{"effective_at":"` + at.Format(time.RFC3339) + `",` + prices + `}` }
	for _, at := range []time.Time{{}, time.Unix(0, 0).UTC(), f.clock.Now().Add(-61 * time.Second)} {
		f.refused(f.send("POST", "/models/"+m.ID+"/prices", moment(at)), 400, "invalid", "effective_at")
	}
	var p Price
	f.want(f.send("POST", "/models/"+m.ID+"/prices", moment(f.clock.Now().Add(-50*time.Second))), 201, &p)
	if !p.EffectiveAt.Equal(f.clock.Now()) {
		t.Errorf("a moment ago is %v, want now", p.EffectiveAt)
	}
	f.clock.Advance(time.Second)
	f.want(f.send("POST", "/models/"+m.ID+"/prices", `{`+prices+`}`), 201, &p)
	if !p.EffectiveAt.Equal(f.clock.Now()) {
		t.Errorf("without a moment it is %v, want now", p.EffectiveAt)
	}
}

func TestAttachedKeysAreNotShown(t *testing.T) {
	f := setup(t)
	f.want(f.send("POST", "/models", `{"name":"acme/m","context_tokens":4096}`), 201, nil)
	f.want(f.send("POST", "/units", `{"name":"u","url":"http://127.0.0.1:9","engine":"vllm","model":"acme/m","key":"sk-upstream-secret"}`), 201, nil)
	a := f.send("GET", "/units", "")
	var units Page[Unit]
	f.want(a, 200, &units)
	if strings.Contains(string(a.body), "sk-upstream") || !units.Data[0].HasKey || units.Data[0].State != "unknown" {
		t.Errorf("units %s", a.body)
	}
	if models := f.send("GET", "/models", ""); !strings.Contains(string(models.body), `"units":1`) {
		t.Errorf("models %s", models.body)
	}
}

func TestReports(t *testing.T) {
	f := setup(t)
	org, _ := f.org("Acme")
	path := "/orgs/" + ids.Format(ids.Org, org.ID)
	var u UsageReport
	f.want(f.send("GET", path+"/usage?group_by=model&step=day&time_zone=Asia/Kolkata", ""), 200, &u)
	if u.To != time.Date(2026, 11, 30, 12, 15, 0, 0, time.UTC) || u.From != u.To.AddDate(0, 0, -30) || u.Step != "day" || u.Data[0].Tokens.Output != 5 {
		t.Errorf("usage %+v", u)
	}
	var l Ledger
	f.want(f.send("GET", path+"/ledger?from=2026-11-01T00:00:00Z", ""), 200, &l)
	if l.Opening["prepaid_paid"].USD != "-0.000000005" || len(l.Lines[0].Entries) != 2 || l.Lines[0].TxnID != "" {
		t.Errorf("ledger %+v", l)
	}
	var r Request
	f.want(f.send("GET", path+"/requests/"+ids.Format(ids.Request, ids.New()), ""), 200, &r)
	if r.Charged.Nano != 7 || r.FirstTokenAt != nil || r.Attempts == nil {
		t.Errorf("request %+v", r)
	}
	var s Status
	f.want(f.send("GET", "/status", ""), 200, &s)
	if s.RaterLagMS != 1500 || s.OpenEpochs[0].Outstanding.Nano != 3 {
		t.Errorf("status %+v", s)
	}
	var rec Reconciliation
	f.want(f.send("POST", "/reconcile", ""), 200, &rec)
	if string(rec.Report) != `{"lines":[]}` {
		t.Errorf("reconciliation %s", rec.Report)
	}
}

func TestTheNameOfATokenMayHoldAnything(t *testing.T) {
	f := setup(t)
	var made NewControlToken
	f.want(f.send("POST", "/control-tokens", `{"name":"ci / deploy 100%"}`), 201, &made)
	f.want(f.send("GET", "/status", "", "Authorization", "Bearer "+made.Bearer), 200, nil)
	f.want(f.send("DELETE", "/control-tokens/ci%20%2F%20deploy%20100%25", ""), 204, nil)
	f.refused(f.send("GET", "/status", "", "Authorization", "Bearer "+made.Bearer), 401, "token_revoked", "")
}

// brokenSystem fails in ways that no caller must see.
type brokenSystem struct{}

func (brokenSystem) Status(context.Context) (StatusInfo, error) { panic("at /home/secret/path") }
func (brokenSystem) Reconcile(context.Context, tenants.Actor) (ReconcileInfo, error) {
	return ReconcileInfo{}, errors.New("pq: secret detail")
}

type anybody struct{ Tenants }

func (anybody) AuthenticateControl(context.Context, string) (tenants.Actor, error) {
	return tenants.Actor{Operator: true, Token: "t"}, nil
}

func TestNothingInternalLeaks(t *testing.T) {
	h := New(Deps{Tenants: anybody{}, System: brokenSystem{}})
	for _, r := range []*http.Request{httptest.NewRequest("GET", Root+"/status", nil), httptest.NewRequest("POST", Root+"/reconcile", nil)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %s", r.URL, w.Code, w.Body)
		}
	}
}
