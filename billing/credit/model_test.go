package credit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// world is several gateways on one database, and what must be true of them whatever happens in whatever order.
type world struct {
	*house
	t        *testing.T
	clock    *clock.Manual
	payers   []credit.Payer // keys of one organization
	gateways []*credit.Allotments
	holds    []*credit.Hold
	unrated  []charge
	dead     []ids.ID // crashed epochs that are not fenced
	fenced   map[ids.ID]bool
	sums     map[ids.ID]int64       // settled + outstanding of every budget at the last look
	rated    map[ids.ID]money.Nano  // what each budget must have settled
	owner    map[*credit.Hold]int   // gateway of a hold; -1 = crashed
	amounts  map[*credit.Hold]int64 // what the model says is held
}

type charge struct {
	epoch   ids.ID
	budgets []ids.ID
	amount  money.Nano
}

const worldGateways = 3

func newWorld(t *testing.T, rt *rapid.T, h *house) *world {
	w := &world{house: h, t: t, clock: clock.NewManual(time.Now()), fenced: map[ids.ID]bool{}, sums: map[ids.ID]int64{},
		rated: map[ids.ID]money.Nano{}, owner: map[*credit.Hold]int{}, amounts: map[*credit.Hold]int64{}}
	p := h.org(rt, money.Nano(rapid.Int64Range(0, 2000).Draw(rt, "credit")))
	w.payers = []credit.Payer{p, h.key(rt, p)}
	for range worldGateways {
		w.gateways = append(w.gateways, w.start(rt))
	}
	return w
}

func (w *world) start(rt *rapid.T) *credit.Allotments {
	a, err := credit.Open(context.Background(), credit.Config{DB: w.db, Bus: w.bus, Clock: w.clock, Process: "model", LockDir: w.locks,
		Validity: 1000 * time.Hour, Heartbeat: 100 * time.Hour, RecallWait: 5 * time.Millisecond, IdleAfter: time.Hour})
	if err != nil {
		rt.Fatal(err)
	}
	return a
}

func (w *world) hold(rt *rapid.T) {
	g := rapid.IntRange(0, worldGateways-1).Draw(rt, "gateway")
	p := rapid.SampledFrom(w.payers).Draw(rt, "key")
	amount := rapid.Int64Range(0, 600).Draw(rt, "amount")
	hold, err := w.gateways[g].Hold(context.Background(), p, money.Nano(amount))
	if err != nil {
		w.mustBeRefusal(rt, err)
		return
	}
	w.holds, w.owner[hold], w.amounts[hold] = append(w.holds, hold), g, amount
}

// mustBeRefusal accepts 402, and 503 from a gateway whose epoch was fenced.
func (w *world) mustBeRefusal(rt *rapid.T, err error) {
	if !fault.Is(err, fault.OutOfCredit) && !fault.Is(err, fault.Unavailable) {
		rt.Fatal(err)
	}
}

func (w *world) pick(rt *rapid.T) *credit.Hold {
	if len(w.holds) == 0 {
		rt.Skip("no holds")
	}
	return w.holds[rapid.IntRange(0, len(w.holds)-1).Draw(rt, "hold")]
}

func (w *world) extend(rt *rapid.T) {
	hold := w.pick(rt)
	more := rapid.Int64Range(0, 300).Draw(rt, "more")
	if err := hold.Extend(context.Background(), money.Nano(more)); err != nil {
		w.mustBeRefusal(rt, err)
		return
	}
	w.amounts[hold] += more
}

func (w *world) settle(rt *rapid.T) {
	hold := w.pick(rt)
	if int64(hold.Amount()) != w.amounts[hold] {
		rt.Fatalf("%d are held, want %d", hold.Amount(), w.amounts[hold])
	}
	w.end(hold, money.Nano(rapid.Int64Range(0, w.amounts[hold]).Draw(rt, "charge")))
}

func (w *world) end(hold *credit.Hold, n money.Nano) {
	hold.Settle(n)
	w.forget(hold)
	w.unrated = append(w.unrated, charge{hold.Epoch(), hold.Budgets(), n})
}

func (w *world) forget(hold *credit.Hold) {
	for i, h := range w.holds {
		if h == hold {
			w.holds = append(w.holds[:i], w.holds[i+1:]...)
		}
	}
}

// rateOne rates the oldest charge; one that comes after the fence is the operator's overrun.
func (w *world) rateOne(rt *rapid.T) {
	if len(w.unrated) == 0 {
		rt.Skip("nothing to rate")
	}
	c := w.unrated[0]
	w.unrated = w.unrated[1:]
	if w.fenced[c.epoch] {
		return
	}
	w.rate(rt, c.epoch, w.payers[0].Org, c.budgets, c.amount)
	for _, b := range c.budgets {
		w.rated[b] += c.amount
	}
}

func (w *world) rateAll(rt *rapid.T) {
	for len(w.unrated) > 0 {
		w.rateOne(rt)
	}
}

func (w *world) crash(rt *rapid.T) {
	g := rapid.IntRange(0, worldGateways-1).Draw(rt, "gateway")
	epoch := w.gateways[g].Epoch()
	w.gateways[g].Crash()
	for _, hold := range append([]*credit.Hold(nil), w.holds...) {
		if w.owner[hold] == g {
			w.forget(hold) // its answer died with it
		}
	}
	w.dead = append(w.dead, epoch)
	w.gateways[g] = w.start(rt)
}

// fence ends a dead epoch, or a living one whose gateway was cut off for too long.
func (w *world) fence(rt *rapid.T) {
	candidates := append([]ids.ID(nil), w.dead...)
	for _, a := range w.gateways {
		candidates = append(candidates, a.Epoch())
	}
	w.fenceOne(rt, rapid.SampledFrom(candidates).Draw(rt, "epoch"))
}

func (w *world) fenceOne(rt *rapid.T, epoch ids.ID) {
	if w.fenced[epoch] {
		return
	}
	w.rateAll(rt)
	w.system(rt, func(tx pgx.Tx) error {
		if _, err := credit.ReturnRest(context.Background(), tx, epoch); err != nil {
			return err
		}
		_, err := tx.Exec(context.Background(), "update gateway_epochs set fenced_at = now() where id = $1", epoch)
		return err
	})
	w.fenced[epoch] = true
}

func (w *world) changeCap(rt *rapid.T) {
	p := rapid.SampledFrom(w.payers).Draw(rt, "key")
	scopes := []credit.Cap{{Scope: credit.KeyScope, ScopeID: p.Key}, {Scope: credit.ProjectScope, ScopeID: p.Project}, {Scope: credit.OrgScope, ScopeID: p.Org}}
	c := rapid.SampledFrom(scopes).Draw(rt, "scope")
	c.Period = rapid.SampledFrom([]period.Kind{period.Total, period.Month}).Draw(rt, "period")
	c.Amount = money.Nano(rapid.Int64Range(0, 2000).Draw(rt, "cap"))
	set := w.setCap(rt, p.Org, c)
	if rapid.IntRange(0, 3).Draw(rt, "remove") == 0 {
		if err := w.desk.RemoveCap(context.Background(), tenants.System(), p.Org, set.ID); err != nil {
			rt.Fatal(err)
		}
	}
}

// invariants hold after every step.
func (w *world) invariants(rt *rapid.T) {
	w.clock.Advance(time.Second) // no refusal is remembered
	for i, a := range w.gateways {
		if n := a.LeastFree(); n < 0 {
			rt.Fatalf("gateway %d: a pot has %d", i, n)
		}
		if s := a.Stats(); s.Misuses != 0 {
			rt.Fatalf("%+v", s)
		}
	}
	w.system(rt, func(tx pgx.Tx) error {
		rows, err := tx.Query(context.Background(), `
			select id, cap_nano, settled_nano, outstanding_nano, (select coalesce(sum(allotted_nano - used_nano - returned_nano), 0)::bigint
			  from allotments a where a.org_id = b.org_id and a.budget_id = b.id)
			from budgets b where org_id = $1`, w.payers[0].Org)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id ids.ID
			var capNano, settled, outstanding, allotments int64
			if err := rows.Scan(&id, &capNano, &settled, &outstanding, &allotments); err != nil {
				return err
			}
			sum := settled + outstanding
			switch {
			case outstanding != allotments:
				return fmt.Errorf("budget %s: outstanding %d, its allotments have %d", id, outstanding, allotments)
			case sum > capNano && sum > w.sums[id]:
				return fmt.Errorf("budget %s grew to %d above its cap %d", id, sum, capNano)
			case settled != int64(w.rated[id]):
				return fmt.Errorf("budget %s has settled %d, rated were %d", id, settled, w.rated[id])
			}
			w.sums[id] = sum
		}
		return rows.Err()
	})
}

// finish ends everything; then nothing may be outstanding.
func (w *world) finish(rt *rapid.T) {
	for len(w.holds) > 0 {
		w.end(w.holds[0], w.holds[0].Amount())
	}
	w.rateAll(rt)
	for _, a := range w.gateways {
		epoch := a.Epoch()
		if err := a.Close(context.Background(), credit.LogEnd{}); err != nil && !w.fenced[epoch] {
			rt.Fatal(err)
		}
		w.dead = append(w.dead, epoch)
	}
	for _, epoch := range w.dead {
		w.fenceOne(rt, epoch)
	}
	w.invariants(rt)
	if n := query[int64](w.house, rt, "select coalesce(sum(outstanding_nano), 0)::bigint from budgets where org_id = $1", w.payers[0].Org); n != 0 {
		rt.Fatalf("%d are outstanding in the end", n)
	}
}

func TestWhateverHappensNoMoneyIsMadeOrLost(t *testing.T) {
	h := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt, h)
		defer func() {
			for _, a := range w.gateways {
				a.Crash()
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"hold": w.hold, "hold again": w.hold, "hold more": w.hold, "extend": w.extend, "settle": w.settle, "settle another": w.settle,
			"rate": w.rateOne, "crash": w.crash, "fence": w.fence, "cap": w.changeCap, "": w.invariants,
			"grant": func(rt *rapid.T) {
				w.grant(rt, w.payers[0].Org, money.Nano(rapid.Int64Range(1, 500).Draw(rt, "grant")))
			},
		})
		w.finish(rt)
	})
}
