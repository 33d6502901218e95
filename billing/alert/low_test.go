package alert_test

import (
	"strings"
	"sync"
	"testing"

	"millrace/billing/alert"
	"millrace/billing/credit"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// charge books usage for good, as the rater does.
func (w *world) charge(amount money.Nano) {
	w.t.Helper()
	w.exec("update budgets set settled_nano = settled_nano + $2 where org_id = $1 and kind = 'balance'", w.org, int64(amount))
}

func (w *world) lowMails() []string {
	return w.texts("select recipient || ': ' || subject || ' ' || body from outbox where subject like 'Credit is low%' order by created_at, recipient")
}

func TestLowCreditIsToldOncePerCrossing(t *testing.T) {
	w := newWorld(t)
	w.exec("insert into webhooks (org_id, id, url, secret, created_by, created_at) values ($1, $2, 'https://acme.example', '', 'x', now())", w.org, ids.New())
	give := func(amount money.Nano, key string) {
		_, _, err := w.desk.Grant(t.Context(), tenants.System(), credit.GrantInput{Org: w.org, Kind: credit.Paid, Amount: amount, Reason: "wire", IdempotencyKey: key})
		if err != nil {
			t.Fatal(err)
		}
	}
	set := func(below money.Nano) {
		if err := w.teller.SetLow(t.Context(), tenants.System(), w.org, below); err != nil {
			t.Fatal(err)
		}
	}
	told := func(n int) {
		t.Helper()
		var turns sync.WaitGroup
		for range 3 { // several processes look
			turns.Go(func() { w.turn() })
		}
		turns.Wait()
		if got := w.lowMails(); len(got) != n {
			t.Errorf("%d mails, want %d: %v", len(got), n, got)
		}
	}
	set(10 * usd)
	told(0) // who never had credit has none that could fall
	give(30*usd, "first")
	told(0)
	w.charge(20 * usd)
	told(0) // at the threshold is not below it
	w.charge(1)
	told(1)
	if mail := w.lowMails()[0]; !strings.HasPrefix(mail, "owner@acme.example: Credit is low: $9.99 left") || !strings.Contains(mail, "https://millrace.example/limits") {
		t.Errorf("the mail: %s", mail)
	}
	w.charge(5 * usd)
	told(1)
	give(10*usd, "second") // above
	told(1)
	w.charge(7 * usd) // and below again
	told(2)
	set(5 * usd)
	told(2)
	set(20 * usd) // another amount is another crossing
	told(3)
	set(0)
	w.charge(5 * usd)
	told(3)
	events := w.texts("select body from webhook_deliveries where kind = 'balance.low' order by created_at")
	if len(events) != 3 || !strings.Contains(events[0], `"balance_usd":"9.999999999"`) || !strings.Contains(events[0], `"below_usd":"10"`) {
		t.Errorf("the events: %v", events)
	}
}

func TestWhoSetsWhatIsLow(t *testing.T) {
	w := newWorld(t)
	for role, may := range map[tenants.Role]bool{tenants.Owner: true, tenants.Billing: true, tenants.Developer: false, tenants.Viewer: false} {
		by := tenants.Actor{User: ids.New(), Org: w.org, Role: role}
		if err := w.teller.SetLow(t.Context(), by, w.org, usd); may != (err == nil) || err != nil && !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: %v", role, err)
		}
		if err := w.teller.SetLow(t.Context(), by, ids.New(), usd); err == nil {
			t.Errorf("%s may set another organization's", role)
		}
	}
	root := tenants.System()
	for _, below := range []money.Nano{-1, credit.MaxCap + 1} {
		if err := w.teller.SetLow(t.Context(), root, w.org, below); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", below, err)
		}
	}
	if low, err := w.teller.Low(t.Context(), root, w.org); err != nil || low != (alert.Low{Below: usd}) {
		t.Errorf("the threshold reads %+v, %v", low, err)
	}
	if n := len(w.texts("select target from audit_log where action = 'balance_alert.set'")); n != 1 {
		t.Errorf("%d changes in the audit log: the same amount again is none", n)
	}
}
