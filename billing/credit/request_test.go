package credit_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

var (
	ann = tenants.Actor{User: ids.New(), Operator: true}
	bob = tenants.Actor{User: ids.New(), Operator: true}
)

func gift(org ids.ID, amount money.Nano) credit.Ask {
	return credit.Ask{Org: org, Kind: credit.GrantRequest, Grant: credit.Promotional, Amount: amount, Reason: "sorry", IdempotencyKey: ids.New().String()}
}

func TestASmallSumIsGivenAtOnceALargeOneNeedsTwo(t *testing.T) {
	h := open(t)
	p := h.org(t, 0)
	small, err := h.desk.Ask(t.Context(), ann, gift(p.Org, 1000*usd))
	if err != nil || small.State != credit.Done {
		t.Fatalf("%+v, %v", small, err)
	}
	large, err := h.desk.Ask(t.Context(), ann, gift(p.Org, 1000*usd+1))
	if err != nil || large.State != credit.Waiting {
		t.Fatalf("%+v, %v", large, err)
	}
	has := func(want money.Nano) {
		t.Helper()
		if b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org); err != nil || b.Available != want {
			t.Errorf("%s available, want %s, %v", b.Available, want, err)
		}
	}
	has(1000 * usd)
	if _, err := h.desk.Approve(t.Context(), ann, large.ID); !fault.Is(err, fault.Forbidden) {
		t.Errorf("she approved herself: %v", err)
	}
	if _, err := h.desk.Approve(t.Context(), tenants.Actor{User: ids.New(), Org: p.Org, Role: tenants.Owner}, large.ID); !fault.Is(err, fault.Forbidden) {
		t.Errorf("the customer approved: %v", err)
	}
	if done, err := h.desk.Approve(t.Context(), bob, large.ID); err != nil || done.State != credit.Done || done.DecidedBy != bob.Name() {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := h.desk.Approve(t.Context(), bob, large.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("approved twice: %v", err)
	}
	has(2000*usd + 1)
	other, err := h.desk.Ask(t.Context(), ann, gift(p.Org, 5000*usd))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.desk.Refuse(t.Context(), bob, other.ID, " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("refused without a word: %v", err)
	}
	if r, err := h.desk.Refuse(t.Context(), ann, other.ID, "a slip"); err != nil || r.State != credit.Refused {
		t.Errorf("she could not take it back: %+v, %v", r, err)
	}
	has(2000*usd + 1)
	if _, _, err := h.desk.Grant(t.Context(), ann, credit.GrantInput{Org: p.Org, Kind: credit.Paid, Amount: 1001 * usd, Reason: "r", IdempotencyKey: "k"}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a way around: %v", err)
	}
	if list, err := h.desk.Requests(t.Context(), ann); err != nil || len(list) != 3 || list[0].OrgName != "Test" {
		t.Errorf("%+v, %v", list, err)
	}
	h.soundBooks(t, p.Org)
}

// What an operator does to one customer alone adds up over a day, whichever way it is asked for; another operator, another
// customer and another day have their own.
func TestManySmallSumsNeedTwo(t *testing.T) {
	h := open(t)
	p, other := h.org(t, 0), h.org(t, 0)
	ask := func(by tenants.Actor, a credit.Ask, want string) {
		t.Helper()
		if r, err := h.desk.Ask(t.Context(), by, a); err != nil || r.State != want {
			t.Errorf("%+v, %v", r, err)
		}
	}
	grant := func(amount money.Nano) error {
		_, _, err := h.desk.Grant(t.Context(), ann, credit.GrantInput{Org: p.Org, Kind: credit.Promotional, Amount: amount, Reason: "sorry", IdempotencyKey: ids.New().String()})
		return err
	}
	ask(ann, gift(p.Org, 400*usd), credit.Done)
	if err := grant(300 * usd); err != nil {
		t.Error(err)
	}
	taken := credit.Ask{Org: p.Org, Kind: credit.AdjustmentRequest, Amount: -200 * usd, Reason: "too much", IdempotencyKey: ids.New().String()}
	ask(ann, taken, credit.Done)
	if err := grant(100*usd + 1); fault.Of(err).Code != "second_operator_needed" {
		t.Errorf("%v", err)
	}
	ask(ann, gift(p.Org, 100*usd+1), credit.Waiting)
	ask(ann, gift(p.Org, 100*usd), credit.Done)
	ask(ann, gift(other.Org, 1000*usd), credit.Done)
	ask(bob, gift(p.Org, 1000*usd), credit.Done)
	h.exec(t, "update credit_requests set asked_at = asked_at - interval '1 day'")
	ask(ann, gift(p.Org, 700*usd+1), credit.Waiting) // the grant is of today
	ask(ann, gift(p.Org, 700*usd), credit.Done)
}

// A credit limit is raised at once as far as an operator may give alone; more waits, and lowering never does.
func TestALargeCreditLimitNeedsTwo(t *testing.T) {
	h := open(t)
	p := h.org(t, 10*usd)
	ask := func(limit money.Nano, want string) credit.Request {
		t.Helper()
		r, err := h.desk.Ask(t.Context(), ann, credit.Ask{Org: p.Org, Kind: credit.LimitRequest, Limit: limit, Reason: "good customer", IdempotencyKey: ids.New().String()})
		if err != nil || r.State != want {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	available := func(want money.Nano) {
		t.Helper()
		if b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org); err != nil || b.Available != want {
			t.Errorf("%s available, want %s, %v", b.Available, want, err)
		}
	}
	ask(600*usd, credit.Done)
	available(610 * usd)
	if err := h.desk.SetCreditLimit(t.Context(), ann, p.Org, 1001*usd); fault.Of(err).Code != "second_operator_needed" {
		t.Errorf("%v", err)
	}
	if err := h.desk.SetCreditLimit(t.Context(), ann, p.Org, 1000*usd); err != nil {
		t.Error(err)
	}
	ask(100*usd, credit.Done)
	available(110 * usd)
	large := ask(5000*usd, credit.Waiting)
	if large.Amount != 4900*usd {
		t.Errorf("%+v", large)
	}
	available(110 * usd)
	if _, err := h.desk.Approve(t.Context(), bob, large.ID); err != nil {
		t.Error(err)
	}
	available(5010 * usd)
	if _, err := h.desk.Ask(t.Context(), ann, credit.Ask{Org: p.Org, Kind: credit.LimitRequest, Limit: -1, Reason: "x", IdempotencyKey: "k"}); fault.Of(err).Param != "credit_limit" {
		t.Errorf("%v", err)
	}
}

func TestAnAskIsDoneOnce(t *testing.T) {
	h := open(t)
	p := h.org(t, 0)
	a := gift(p.Org, usd)
	for range 3 {
		if r, err := h.desk.Ask(t.Context(), ann, a); err != nil || r.State != credit.Done {
			t.Errorf("%+v, %v", r, err)
		}
	}
	a.Amount = 2 * usd
	if _, err := h.desk.Ask(t.Context(), ann, a); !fault.Is(err, fault.Conflict) {
		t.Errorf("something else under the same key: %v", err)
	}
	if b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org); err != nil || b.Promo != usd {
		t.Errorf("%+v, %v", b, err)
	}
}

// lastTxn is an organization's newest transaction of a kind.
func lastTxn(h *house, t tester, org ids.ID, kind ledger.Kind) ids.ID {
	return query[ids.ID](h, t, "select id from ledger_txns where org_id = $1 and kind = $2 order by id desc limit 1", org, string(kind))
}

func TestCorrectionsAreReversals(t *testing.T) {
	h := open(t)
	p := h.org(t, 3*usd)
	adjust := func(amount money.Nano) credit.Ask {
		return credit.Ask{Org: p.Org, Kind: credit.AdjustmentRequest, Amount: amount, Reason: "charged twice", IdempotencyKey: ids.New().String()}
	}
	if _, err := h.desk.Ask(t.Context(), ann, adjust(5*usd)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.desk.Ask(t.Context(), ann, adjust(-2*usd)); err != nil {
		t.Fatal(err)
	}
	undo := func(txn ids.ID) error {
		_, err := h.desk.Ask(t.Context(), ann, credit.Ask{Org: p.Org, Kind: credit.ReversalRequest, Txn: txn, Reason: "a slip", IdempotencyKey: ids.New().String()})
		return err
	}
	txn := lastTxn(h, t, p.Org, ledger.Adjustment)
	if err := undo(txn); err != nil {
		t.Fatal(err)
	}
	if err := undo(txn); !fault.Is(err, fault.Conflict) {
		t.Errorf("reversed twice: %v", err)
	}
	if err := undo(lastTxn(h, t, p.Org, ledger.Reversal)); !fault.Is(err, fault.Conflict) {
		t.Errorf("a reversal was reversed: %v", err)
	}
	if err := undo(ids.New()); !fault.Is(err, fault.NotFound) {
		t.Errorf("nothing was reversed: %v", err)
	}
	if b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org); err != nil || b.Available != 8*usd || b.Paid != 8*usd {
		t.Errorf("%+v, %v", b, err)
	}
	// The grant itself: its own lot goes first.
	if err := undo(lastTxn(h, t, p.Org, ledger.Grant)); err != nil {
		t.Fatal(err)
	}
	if b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org); err != nil || b.Available != 5*usd {
		t.Errorf("%+v, %v", b, err)
	}
	h.soundBooks(t, p.Org)
}

// Any sequence of asking, approving, refusing, reversing and dying in between keeps the books, and does each thing once.
func TestRequestsKeepTheBooks(t *testing.T) {
	h := open(t)
	h.desk.ApproveAbove(10 * usd)
	rapid.Check(t, func(t *rapid.T) {
		p := h.org(t, 0)
		var waiting []ids.ID
		var want money.Nano
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			ctx, cancel := context.Background(), context.CancelFunc(func() {})
			if rapid.Bool().Draw(t, "dies") {
				ctx, cancel = context.WithTimeout(ctx, time.Duration(rapid.IntRange(0, 4000).Draw(t, "us"))*time.Microsecond)
			}
			switch step := rapid.SampledFrom([]string{"ask", "approve", "refuse"}).Draw(t, "step"); {
			case step == "ask":
				amount := money.Nano(rapid.Int64Range(1, 20).Draw(t, "usd")) * usd
				a := gift(p.Org, amount)
				if rapid.Bool().Draw(t, "adjust") {
					a.Kind, a.Grant = credit.AdjustmentRequest, ""
				}
				_, _ = h.desk.Ask(ctx, ann, a)                     // may die before or behind the commit
				r, err := h.desk.Ask(context.Background(), ann, a) // the same again
				if err != nil {
					t.Fatal(err)
				}
				if r.State == credit.Waiting {
					waiting = append(waiting, r.ID)
				} else {
					want += amount
				}
			case len(waiting) > 0:
				id := waiting[0]
				waiting = waiting[1:]
				amount := money.Nano(query[int64](h, t, "select amount_nano from credit_requests where id = $1", id))
				for _, ctx := range []context.Context{ctx, context.Background()} {
					var err error
					if step == "approve" {
						_, err = h.desk.Approve(ctx, bob, id)
					} else {
						_, err = h.desk.Refuse(ctx, bob, id, "no")
					}
					if err != nil && ctx == context.Background() && !fault.Is(err, fault.Conflict) {
						t.Fatal(err)
					}
				}
				if step == "approve" {
					want += amount
				}
			}
			cancel()
		}
		if b, err := h.desk.Balance(context.Background(), tenants.System(), p.Org); err != nil || b.Available != want {
			t.Fatalf("%s available, want %s, %v", b.Available, want, err)
		}
		h.soundBooks(t, p.Org)
	})
}

// A reversal of credit that is used up already leaves a debt, which the next credit pays.
func TestAReversalMayLeaveADebt(t *testing.T) {
	h := open(t)
	p := h.org(t, 5*usd)
	h.spend(t, p.Org, 4*usd)
	if _, err := h.desk.Ask(t.Context(), ann, credit.Ask{Org: p.Org, Kind: credit.ReversalRequest, Txn: lastTxn(h, t, p.Org, ledger.Grant), Reason: "never paid", IdempotencyKey: "k"}); err != nil {
		t.Fatal(err)
	}
	if b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org); err != nil || b.Available != -4*usd || b.Paid != -4*usd {
		t.Errorf("%+v, %v", b, err)
	}
	h.grant(t, p.Org, 6*usd)
	h.soundBooks(t, p.Org)
}

// What ended unused was taken already, and what lies at the payment provider is not ours to turn round.
func TestWhatCannotBeReversed(t *testing.T) {
	h := open(t)
	p := h.org(t, 3*usd)
	h.ending(t, p.Org, credit.Promotional, 2*usd)
	given := lastTxn(h, t, p.Org, ledger.Grant)
	if _, err := h.desk.Expire(t.Context(), time.Now().Add(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	var fee ids.ID
	h.system(t, func(tx pgx.Tx) (err error) {
		fee, _, err = ledger.Post(t.Context(), tx, ledger.Txn{Org: p.Org, Kind: ledger.Adjustment, Key: "fee",
			Entries: []ledger.Entry{ledger.Debit(ledger.Fees, usd), ledger.Credit(ledger.StripeClearing, usd)}})
		return err
	})
	for what, txn := range map[string]ids.ID{"credit that ended": given, "a payment provider's fee": fee} {
		_, err := h.desk.Ask(t.Context(), ann, credit.Ask{Org: p.Org, Kind: credit.ReversalRequest, Txn: txn, Reason: "a slip", IdempotencyKey: ids.New().String()})
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%s was reversed: %v", what, err)
		}
	}
	h.soundBooks(t, p.Org)
}
