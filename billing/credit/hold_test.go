package credit_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

func TestHoldTakesFromEveryBudgetOrNone(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	h.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: 10 * usd})
	h.setCap(t, p.Org, credit.Cap{Scope: credit.ProjectScope, ScopeID: p.Project, Period: period.Day, Amount: 20 * usd})
	a := h.gateway(t)
	hold := mustHold(t, a, p, 4*usd)
	if n := len(hold.Budgets()); n != 3 || !slices.IsSortedFunc(hold.Budgets(), func(a, b ids.ID) int { return bytes.Compare(a[:], b[:]) }) {
		t.Errorf("budgets %v", hold.Budgets())
	}
	if !slices.Contains(hold.Budgets(), hold.OrgBudget()) || hold.Epoch() != a.Epoch() || hold.Amount() != 4*usd {
		t.Errorf("%+v", hold)
	}
	if err := hold.Extend(t.Context(), 5*usd); err != nil {
		t.Error(err)
	}
	f := mustRefuse(t, a, p, 2*usd, fault.OutOfCredit)
	if f.Code != "insufficient_quota" || !strings.HasPrefix(f.Message, "What is left of the API key's monthly budget of 10 USD does not cover this request: 1 USD. It resets on 1 ") ||
		!strings.HasSuffix(f.Message, " at 00:00 (Europe/Berlin).") {
		t.Errorf("%s: %s", f.Code, f.Message)
	}
	if b := f.Budget; b == nil || b.Scope != "key" || b.LimitUSD != "10" || b.RemainingUSD != "1" || !b.Reset.After(time.Now()) {
		t.Errorf("what is left: %+v", b)
	}
	other := mustHold(t, a, h.key(t, p), 11*usd) // of the project's 20, 9 are taken
	f = mustRefuse(t, a, h.key(t, p), 1, fault.OutOfCredit)
	if !strings.HasPrefix(f.Message, "The project's daily budget of 20 USD is used up. It resets on ") {
		t.Errorf("%s", f.Message)
	}
	other.Settle(11 * usd)
	hold.Settle(9 * usd)
	if err := hold.Extend(t.Context(), 1); !fault.Is(err, fault.Internal) {
		t.Errorf("a settled hold was extended: %v", err)
	}
	h.check(t, true)
	if s := a.Stats(); s.Holds != 0 || s.Misuses != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSettleChargesAtMostWhatIsHeld(t *testing.T) {
	h := open(t)
	p := h.org(t, 10*usd)
	a := h.gateway(t)
	hold := mustHold(t, a, p, 6*usd)
	hold.Settle(7 * usd)
	hold.Settle(1 * usd)
	if s := a.Stats(); s.Misuses != 2 {
		t.Errorf("wrong settlements were not counted: %+v", s)
	}
	mustRefuse(t, a, p, 4*usd+1, fault.OutOfCredit)
	mustHold(t, a, p, 4*usd).Release()
	mustHold(t, a, p, 4*usd).Settle(-1)
	mustHold(t, a, p, 4*usd).Settle(4 * usd)
	f := mustRefuse(t, a, p, 1, fault.OutOfCredit)
	if f.Message != "The organization's credit is used up. Add credit to continue." {
		t.Error(f.Message)
	}
	mustHold(t, a, p, 0).Settle(0) // a free model
	for _, amount := range []money.Nano{-1, 1e17} {
		if _, err := a.Hold(t.Context(), p, amount); err == nil {
			t.Errorf("%s USD were held", amount)
		}
	}
}

func TestWhoHasNoCredit(t *testing.T) {
	h := open(t)
	a := h.gateway(t)
	p := h.org(t, 0)
	mustRefuse(t, a, p, 1, fault.OutOfCredit)
	mustHold(t, a, p, 0).Release()
	h.grant(t, p.Org, usd)
	eventually(t, "the grant can be spent", func() bool {
		hold, err := a.Hold(t.Context(), p, usd)
		if err == nil {
			hold.Release()
		}
		return err == nil
	})
	unknown := credit.Payer{Org: ids.New(), Project: ids.New(), Key: ids.New(), TimeZone: "UTC"}
	if _, err := a.Hold(t.Context(), unknown, 1); err == nil || fault.Is(err, fault.OutOfCredit) {
		t.Errorf("an unknown organization: %v", err)
	}
	p.TimeZone = "Nowhere"
	p.Key = ids.New()
	if _, err := a.Hold(t.Context(), p, 1); !fault.Is(err, fault.Internal) && !fault.Is(err, fault.Unavailable) {
		t.Errorf("an unknown zone: %v", err)
	}
}

// A cap worth ten full holds and 200 requests at once: ten are served, not one nano-dollar too much, the others are told.
func TestTenOfTwoHundred(t *testing.T) {
	for _, gateways := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("%d gateways", gateways), func(t *testing.T) { t.Parallel(); tenOfTwoHundred(t, gateways) })
	}
}

func tenOfTwoHundred(t *testing.T, gateways int) {
	const full = 1_234_567_891
	h := open(t)
	p := h.org(t, 1000*usd)
	h.setCap(t, p.Org, credit.Cap{Scope: credit.OrgScope, ScopeID: p.Org, Period: period.Total, Amount: 10 * full})
	all := make([]*credit.Allotments, gateways)
	for i := range all {
		all[i] = h.gateway(t)
	}
	var served, refused atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 200 {
		wg.Go(func() {
			<-start
			hold, err := all[i%gateways].Hold(t.Context(), p, full)
			switch {
			case err == nil:
				hold.Settle(full)
				served.Add(1)
			case fault.Is(err, fault.OutOfCredit):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	if served.Load() != 10 || refused.Load() != 190 {
		t.Errorf("%d served, %d refused", served.Load(), refused.Load())
	}
	h.check(t, true)
}

// Requests that cost less than they hold leave money for others: as many are served as the cap pays for.
func TestWhatIsNotChargedServesOthers(t *testing.T) {
	h := open(t)
	const charge, full = usd, 20 * usd
	p := h.org(t, 0)
	h.grant(t, p.Org, 30*charge+full-1) // one cannot be admitted with less than a full hold left
	one, two := h.gateway(t), h.gateway(t)
	var served, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		a := one
		if i%2 == 1 {
			a = two
		}
		wg.Go(func() {
			for {
				hold, err := a.Hold(t.Context(), p, full)
				if err == nil {
					hold.Settle(charge)
					served.Add(1)
					return
				}
				if served.Load() >= 30 {
					refused.Add(1)
					return
				}
			}
		})
	}
	wg.Wait()
	if served.Load() != 30 || refused.Load() != 70 {
		t.Errorf("%d served, %d refused", served.Load(), refused.Load())
	}
	h.check(t, true)
}

func TestAnExtensionBeatsANewAdmission(t *testing.T) {
	h := open(t)
	p := h.org(t, 12*usd)
	a := h.gateway(t, func(c *credit.Config) { c.RecallWait = 10 * time.Second })
	rival := h.gateway(t, func(c *credit.Config) { c.Bus = deaf{c.Bus}; c.IdleAfter = time.Hour })
	kept := mustHold(t, rival, p, 3*usd) // so that the others do not know that nothing can be had
	running, other := mustHold(t, a, p, 5*usd), mustHold(t, a, p, 2*usd)
	extended := make(chan error, 1)
	go func() { extended <- running.Extend(t.Context(), 2*usd) }()
	eventually(t, "the extension asks the others", func() bool { return a.Stats().Recalls > 0 })
	admitted := make(chan error, 1)
	go func() {
		hold, err := a.Hold(t.Context(), p, 2*usd)
		if err == nil {
			hold.Release()
		}
		admitted <- err
	}()
	other.Release() // enough for either
	if err := <-extended; err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-admitted:
		t.Fatalf("the admission went first: %v", err)
	default:
	}
	running.Release()
	if err := <-admitted; err != nil {
		t.Fatal(err)
	}
	kept.Release()
}

// deaf is a bus whose notices are not heard.
type deaf struct{ credit.Bus }

func (deaf) Subscribe(string, func(string, []byte)) (func(), error) { return func() {}, nil }

func TestAHoldThatNobodyWaitsForIsNotTaken(t *testing.T) {
	h := open(t)
	p := h.org(t, 10*usd)
	a := h.gateway(t, func(c *credit.Config) { c.RecallWait = time.Minute })
	rival := h.gateway(t, func(c *credit.Config) { c.Bus = deaf{c.Bus}; c.IdleAfter = time.Hour })
	kept := mustHold(t, rival, p, 10*usd)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := a.Hold(ctx, p, usd); failed <- err }()
	eventually(t, "it asks the others", func() bool { return a.Stats().Recalls > 0 })
	cancel()
	if err := <-failed; err != context.Canceled {
		t.Errorf("got %v", err)
	}
	kept.Release()
	if s := a.Stats(); s.Holds != 0 {
		t.Errorf("%+v", s)
	}
}
