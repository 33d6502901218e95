package domain_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"millrace/agents/hub"
	"millrace/billing/credit"
	"millrace/db"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/tenants"
	"millrace/web/admin"
	"millrace/web/session"
)

func TestCreateCustomer(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.staff), s.viewer(s.staff)
	first := usd(t, "12.5")
	in := admin.NewCustomer{Name: "Coral", Email: "cora@coral.example", Zone: "Europe/Berlin", Credit: &first}
	id, err := s.site.Operate.CreateCustomer(ctx, who, in)
	s.must(err)
	x, err := s.site.Business.Customer(ctx, id)
	s.must(err)
	if x.Name != "Coral" || x.Balance != first || x.Zone != "Europe/Berlin" || len(x.Members) != 1 || x.Members[0].Role != "owner" || x.Grants[0].Reason != "First credit" || x.Grants[0].By != "ops@millrace.example" {
		t.Errorf("customer %+v", x)
	}
	_, err = s.site.Operate.CreateCustomer(ctx, who, in)
	if !fault.Is(err, fault.Conflict) || fault.Of(err).Param != "name" {
		t.Errorf("the form sent twice: %v, want a Conflict of the name", err)
	}
	// The owner's link waits in the outbox, works, and works once.
	box, err := s.site.Business.Outbox(ctx)
	s.must(err)
	if box.Mails || len(box.Items) != 5 || !box.Items[1].News || box.Items[1].Link != "" || box.Items[0].News || box.Items[0].To != "cora@coral.example" || box.Items[0].Used || !box.Items[0].Expires.Equal(now.Add(tenants.LinkTTL)) {
		t.Fatalf("outbox %+v", box)
	}
	_, token, _ := strings.Cut(box.Items[0].Link, publicURL+"/login/link?t=")
	signed, err := s.site.Auth.Exchange(t.Context(), token, session.Client{})
	s.must(err)
	v, err := s.site.Auth.Lookup(t.Context(), signed.Secret)
	if err != nil || v.Org != id || v.OrgName != "Coral" || v.Role != "owner" || v.Zone.String() != "Europe/Berlin" {
		t.Errorf("the owner is %+v, error %v", v, err)
	}
	if box, err = s.site.Business.Outbox(ctx); err != nil || !box.Items[0].Used || box.Items[0].Link != "" {
		t.Errorf("a used link in the outbox: %+v, error %v", box.Items, err)
	}
	s.must(s.tenants.RequestLink(t.Context(), "cora@coral.example"))
	s.clock.Advance(tenants.LinkTTL)
	if box, err = s.site.Business.Outbox(ctx); err != nil || len(box.Items) != 6 || box.Items[0].Used || box.Items[0].Link != "" {
		t.Errorf("a link that is over: %+v, error %v", box.Items, err)
	}
	for name, x := range map[string]struct {
		in    admin.NewCustomer
		param string
	}{
		"no name":    {admin.NewCustomer{Email: "a@b.example", Zone: "UTC"}, "name"},
		"no address": {admin.NewCustomer{Name: "n1", Email: "nobody", Zone: "UTC"}, "email"},
		"no zone":    {admin.NewCustomer{Name: "n2", Email: "a@b.example", Zone: "Mars"}, "zone"},
	} {
		if _, err := s.site.Operate.CreateCustomer(ctx, who, x.in); !fault.Is(err, fault.Invalid) || fault.Of(err).Param != x.param {
			t.Errorf("%s: %v, want Invalid on %q", name, err, x.param)
		}
	}
}

// Two clicks at once make one customer with one credit.
func TestCreateCustomerTwiceAtOnce(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.staff), s.viewer(s.staff)
	first := usd(t, "10")
	made := make([]ids.ID, 4)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			id, err := s.site.Operate.CreateCustomer(ctx, who, admin.NewCustomer{Name: "Coral", Email: "cora@coral.example", Zone: "UTC", Credit: &first})
			if err != nil && !fault.Is(err, fault.Conflict) {
				t.Error(err)
			}
			made[i] = id
		})
	}
	wg.Wait()
	list, err := s.site.Business.Customers(ctx, "coral", "")
	s.must(err)
	if len(list.Rows) != 1 || list.Rows[0].Balance != first {
		t.Errorf("customers %+v, want one with $10", list.Rows)
	}
	for _, id := range made {
		if id != ids.Nil && id != list.Rows[0].ID {
			t.Errorf("one click made %v", id)
		}
	}
}

// give grants credit as the staff.
func (s *shop) give(g admin.Grant) error {
	_, err := s.site.Operate.GrantCredit(s.as(s.staff), s.viewer(s.staff), g)
	return err
}

func TestGrantCredit(t *testing.T) {
	s := newShop(t)
	who := s.viewer(s.staff)
	before, err := s.desk.Balance(t.Context(), s.root, s.acme.ID)
	s.must(err)
	g := grantOf(s.acme.ID, "3", "for the trouble")
	g.Promo = true
	s.must(s.give(g))
	if err := s.give(g); !fault.Is(err, fault.Conflict) {
		t.Errorf("the form sent twice: %v, want Conflict", err)
	}
	g.Amount = usd(t, "4")
	if err := s.give(g); !fault.Is(err, fault.Conflict) {
		t.Errorf("the form sent twice with another amount: %v, want Conflict", err)
	}
	after, err := s.desk.Balance(t.Context(), s.root, s.acme.ID)
	s.must(err)
	if after.Cap-before.Cap != usd(t, "3") || after.Promo-before.Promo != usd(t, "3") || after.Paid != before.Paid {
		t.Errorf("balance %+v, before %+v", after, before)
	}
	grants, err := s.desk.Grants(t.Context(), s.root, s.acme.ID, 1)
	if err != nil || grants[0].Kind != credit.Promotional || grants[0].ExpiresAt != nil || grants[0].CreatedBy != ids.Format(ids.User, who.User) {
		t.Errorf("grant %+v, error %v", grants, err)
	}
	if err := s.give(grantOf(ids.New(), "1", "to nobody")); !fault.Is(err, fault.NotFound) {
		t.Errorf("credit for nobody: %v", err)
	}
}

func TestPublishPrice(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.staff), s.viewer(s.staff)
	same := perMillion(t, "0.50", "0.05", "1")
	if err := s.site.Operate.PublishPrice(ctx, who, admin.NewPrice{Model: s.small.ID, Prices: same}); !fault.Is(err, fault.Conflict) {
		t.Errorf("what is in force already: %v, want Conflict", err)
	}
	dearer := perMillion(t, "0.60", "0.06", "1.2")
	s.must(s.site.Operate.PublishPrice(ctx, who, admin.NewPrice{Model: s.small.ID, Prices: dearer, Note: "dearer"}))
	if err := s.site.Operate.PublishPrice(ctx, who, admin.NewPrice{Model: s.small.ID, Prices: dearer, Note: "dearer"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the form sent twice: %v, want Conflict", err)
	}
	later := admin.NewPrice{Model: s.small.ID, Prices: same, Effective: now.AddDate(0, 0, 3)}
	s.must(s.site.Operate.PublishPrice(ctx, who, later))
	if err := s.site.Operate.PublishPrice(ctx, who, later); !fault.Is(err, fault.Conflict) {
		t.Errorf("a later moment twice: %v, want Conflict", err)
	}
	err := s.site.Operate.PublishPrice(ctx, who, admin.NewPrice{Model: s.small.ID, Prices: same, Effective: now.AddDate(0, 0, -3)})
	if !fault.Is(err, fault.Invalid) || fault.Of(err).Param != "effective" {
		t.Errorf("a price of the past: %v", err)
	}
	if err := s.site.Operate.PublishPrice(ctx, who, admin.NewPrice{Model: ids.New(), Prices: same}); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown model: %v", err)
	}
	models, err := s.site.Customer.Models(s.as(s.owner), s.viewer(s.owner))
	if err != nil || models[1].Prices != dearer || models[1].Next == nil || models[1].Next.Prices != same {
		t.Errorf("the customer sees %+v, error %v", models, err)
	}
}

// What looks odd to the domain alone is asked about on the page, too.
func TestOddPricesAreConfirmedOnThePage(t *testing.T) {
	s := newShop(t)
	m, err := s.models.CreateModel(t.Context(), catalogue.ModelInput{Name: "demo/odd", Context: 1000}, s.root)
	s.must(err)
	path := "/admin/models/" + ids.Format(ids.Model, m.ID) + "/price"
	form := url.Values{"input": {"0.10"}, "cached": {"0.20"}, "output": {"0.40"}, "reasoning": {"0.40"}, "step": {"publish"}}
	for _, typed := range []string{"", "demo/other"} {
		form.Set("confirm", typed)
		status, body, _ := s.page(s.staff, path, form)
		if status != http.StatusUnprocessableEntity || !strings.Contains(body, "Cached tokens would cost more") || !strings.Contains(body, `name="confirm"`) || strings.Contains(body, "A large change") {
			t.Errorf("typed %q: %d", typed, status)
		}
	}
	form.Set("confirm", "demo/odd")
	if status, _, where := s.page(s.staff, path, form); status != http.StatusSeeOther {
		t.Errorf("confirmed: %d, %q", status, where)
	}
}

func TestJoinToken(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.staff), s.viewer(s.staff)
	a, err := s.site.Operate.JoinToken(ctx, who, "")
	s.must(err)
	b, err := s.site.Operate.JoinToken(ctx, who, "ber-04")
	s.must(err)
	if _, err := s.site.Operate.JoinToken(ctx, who, "no name"); !fault.Is(err, fault.Invalid) || fault.Of(err).Param != "name" {
		t.Errorf("a name with a blank: %v", err)
	}
	var named int
	s.must(s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*) FROM join_tokens WHERE host_name = 'ber-04'").Scan(&named)
	}))
	if named != 1 {
		t.Errorf("%d tokens for the name that was given", named)
	}
	if !strings.HasPrefix(a.Command, "millrace-agent --hub "+hubURL+" --join mrj_") || !a.Expires.Equal(now.Add(hub.TokenLife)) || a.Command == b.Command {
		t.Errorf("commands %q and %q, expiry %v", a.Command, b.Command, a.Expires)
	}
}

// someEngine answers what an engine answers when it is asked for its models.
func someEngine(t *testing.T, key, list string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer "+key {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, list)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestAttachAndDetach(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.staff), s.viewer(s.staff)
	url := someEngine(t, "secret-key", `{"data": [{"id": "meta/llama", "max_model_len": 8192}]}`)
	a := admin.Attachment{Name: "acme/llama", URL: url + "/v1", Engine: "vllm", Key: "secret-key"}
	id, err := s.site.Operate.Attach(ctx, who, a)
	s.must(err)
	m, ok := s.models.Model("acme/llama")
	if !ok || m.ID != id || m.Context != 8192 || len(m.Units) != 1 || m.Units[0].UpstreamModel != "meta/llama" || m.Units[0].Name != "acme/llama/1" || m.Units[0].Base != url {
		t.Fatalf("the new model %+v", m)
	}
	if err := attachErr(s.site.Operate.Attach(ctx, who, a)); !fault.Is(err, fault.Conflict) || fault.Of(err).Param != "url" {
		t.Errorf("the form sent twice: %v, want Conflict", err)
	}
	// Another engine of the same model, one that is not up yet: the public name is believed.
	id2, err := s.site.Operate.Attach(ctx, who, admin.Attachment{Name: "acme/llama", URL: "http://127.0.0.1:1", Engine: "openai"})
	s.must(err)
	if m, _ = s.models.Model("acme/llama"); id2 != id || len(m.Units) != 2 {
		t.Errorf("the model has %d units, want 2", len(m.Units))
	}
	detail, err := s.site.Business.Model(ctx, id)
	if err != nil || detail.Priced || detail.Units != 2 {
		t.Errorf("the page of the new model %+v, error %v", detail, err)
	}
	for name, x := range map[string]struct {
		a     admin.Attachment
		param string
	}{
		"no address": {admin.Attachment{Name: "x", URL: "nowhere", Engine: "vllm"}, "url"},
		"no engine":  {admin.Attachment{Name: "x", URL: "http://127.0.0.1:1", Engine: "abacus"}, "engine"},
		"no name":    {admin.Attachment{Name: "a b", URL: "http://127.0.0.1:1", Engine: "vllm"}, "name"},
	} {
		if err := attachErr(s.site.Operate.Attach(ctx, who, x.a)); !fault.Is(err, fault.Invalid) || fault.Of(err).Param != x.param {
			t.Errorf("%s: %v, want Invalid on %q", name, err, x.param)
		}
	}
	unit := m.Units[0].ID
	s.must(s.site.Operate.Detach(ctx, who, unit))
	if err := s.site.Operate.Detach(ctx, who, unit); !fault.Is(err, fault.NotFound) {
		t.Errorf("detached twice: %v, want NotFound", err)
	}
	if err := s.site.Operate.Detach(ctx, who, s.sim); !fault.Is(err, fault.NotFound) {
		t.Errorf("a unit of a host of ours: %v, want NotFound", err)
	}
	units, err := s.site.Business.Units(ctx)
	if err != nil || len(units) != 3 {
		t.Errorf("%d units are left, error %v; want 3", len(units), err)
	}
}

func attachErr(_ ids.ID, err error) error { return err }
