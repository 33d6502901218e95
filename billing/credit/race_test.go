package credit_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// crowd is customers, gateways, raters and an operator, all at work at the same time.
type crowd struct {
	*house
	payers   []credit.Payer
	gateways []*credit.Allotments
	charges  chan unrated

	mu      sync.Mutex
	charged map[ids.ID]money.Nano // by organization
}

type unrated struct {
	org    ids.ID
	charge charge
}

func (c *crowd) request(t *testing.T, random *rand.Rand) {
	p := c.payers[random.IntN(len(c.payers))]
	a := c.gateways[random.IntN(len(c.gateways))]
	hold, err := a.Hold(t.Context(), p, money.Nano(random.IntN(1000)))
	if err != nil {
		if !fault.Is(err, fault.OutOfCredit) {
			t.Error(err)
		}
		return
	}
	if err := hold.Extend(t.Context(), money.Nano(random.IntN(500))); err != nil && !fault.Is(err, fault.OutOfCredit) {
		t.Error(err)
	}
	n := money.Nano(random.Int64N(int64(hold.Amount()) + 1))
	hold.Settle(n)
	c.mu.Lock()
	c.charged[p.Org] += n
	c.mu.Unlock()
	c.charges <- unrated{p.Org, charge{hold.Epoch(), hold.Budgets(), n}}
}

// rater moves batches that span organizations, as billing/rate does: ledger, allotments, budgets.
func (c *crowd) rater(t *testing.T) {
	for first := range c.charges {
		batch := []unrated{first}
		for len(batch) < 50 {
			select {
			case next, more := <-c.charges:
				if more {
					batch = append(batch, next)
					continue
				}
			default:
			}
			break
		}
		if err := c.db.InTx(context.Background(), systemScope, func(tx pgx.Tx) error { return rateBatch(tx, batch) }); err != nil {
			t.Error(err)
		}
	}
}

func rateBatch(tx pgx.Tx, batch []unrated) error {
	ctx := context.Background()
	type allotment struct{ org, budget, epoch ids.ID }
	moves := map[allotment]int64{}
	owed := map[ids.ID]money.Nano{}
	for _, u := range batch {
		owed[u.org] += u.charge.amount
		for _, b := range u.charge.budgets {
			moves[allotment{u.org, b, u.charge.epoch}] += int64(u.charge.amount)
		}
	}
	var charges []ledger.Charge
	for org, n := range owed {
		charges = append(charges, ledger.Charge{Org: org, Amount: n})
	}
	l, err := ledger.Lock(ctx, tx, slices.Collect(maps.Keys(owed)))
	if err != nil {
		return err
	}
	split, err := l.Spend(charges)
	if err != nil {
		return err
	}
	var txns []ledger.Txn
	for i, entries := range split {
		if len(entries) > 0 {
			txns = append(txns, ledger.Txn{Org: charges[i].Org, Kind: ledger.Usage, Entries: entries})
		}
	}
	if _, err := l.Post(ctx, txns); err != nil {
		return err
	}
	var order []allotment
	for m := range moves {
		order = append(order, m)
	}
	slices.SortFunc(order, func(x, y allotment) int {
		if d := bytes.Compare(x.budget[:], y.budget[:]); d != 0 {
			return d
		}
		return bytes.Compare(x.epoch[:], y.epoch[:])
	})
	for _, m := range order {
		if _, err := tx.Exec(ctx, "update allotments set used_nano = used_nano + $4 where org_id = $1 and budget_id = $2 and epoch_id = $3", m.org, m.budget, m.epoch, moves[m]); err != nil {
			return err
		}
	}
	for _, m := range order {
		if _, err := tx.Exec(ctx, "update budgets set settled_nano = settled_nano + $3, outstanding_nano = outstanding_nano - $3 where org_id = $1 and id = $2", m.org, m.budget, moves[m]); err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) operator(t *testing.T, done <-chan struct{}) {
	random := rand.New(rand.NewPCG(7, 7))
	for {
		select {
		case <-done:
			return
		default:
		}
		p := c.payers[random.IntN(len(c.payers))]
		c.grant(t, p.Org, money.Nano(1+random.IntN(50_000)))
		c.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: money.Nano(random.IntN(200_000))})
	}
}

// Gateways raise, return and recall, raters settle, an operator grants and caps: no deadlock, no nano-dollar lost.
func TestACrowdAtWork(t *testing.T) {
	h := open(t)
	c := &crowd{house: h, charges: make(chan unrated, 100), charged: map[ids.ID]money.Nano{}}
	for range 3 {
		p := h.org(t, 100_000)
		c.payers = append(c.payers, p, h.key(t, p))
		h.setCap(t, p.Org, credit.Cap{Scope: credit.ProjectScope, ScopeID: p.Project, Period: period.Day, Amount: usd})
	}
	for range 2 {
		c.gateways = append(c.gateways, h.gateway(t, func(c *credit.Config) { c.IdleAfter, c.RecallWait = time.Millisecond, 20*time.Millisecond }))
	}
	var requests, raters, operator sync.WaitGroup
	for range 2 {
		raters.Go(func() { c.rater(t) })
	}
	done := make(chan struct{})
	operator.Go(func() { c.operator(t, done) })
	for i := range 16 {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		requests.Go(func() {
			for range 150 {
				c.request(t, random)
			}
		})
	}
	requests.Wait()
	close(done)
	operator.Wait()
	close(c.charges)
	raters.Wait()
	var closing error
	for _, a := range c.gateways {
		closing = errors.Join(closing, a.Close(t.Context(), credit.LogEnd{}))
	}
	if closing != nil {
		t.Error(closing)
	}
	h.check(t, false)
	for org, n := range c.charged {
		if got := query[int64](h, t, "select settled_nano from budgets where org_id = $1 and kind = 'balance'", org); got != int64(n) {
			t.Errorf("settled %d, charged %d", got, n)
		}
	}
	if n := query[int64](h, t, "select sum(outstanding_nano)::bigint from budgets"); n != 0 {
		t.Errorf("outstanding %d in the end", n)
	}
	if n := query[int64](h, t, "select deadlocks from pg_stat_database where datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	h.system(t, func(tx pgx.Tx) error {
		r, err := ledger.Verify(t.Context(), tx)
		if err == nil && !r.Sound() {
			t.Errorf("%+v", r)
		}
		return err
	})
}
