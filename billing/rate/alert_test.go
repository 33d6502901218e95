package rate_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"millrace/billing/ledger"
	"millrace/billing/rate"
	"millrace/billing/report"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// A threshold is noted in the transaction of the charges that passed it, once, however often a rater dies on the way.
func TestAlertsAreNotedWithTheCharges(t *testing.T) {
	for _, at := range []string{"settle budgets", "booked", "add rollups"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t)
			e := w.epoch()
			c := w.customer(e, 1_000_000, 1_000_000)
			limit := 10 * c.event(1000).Charge
			w.exec("INSERT INTO caps (org_id, id, scope, scope_id, period, cap_nano) VALUES ($1, $2, 'key', $3, 'total', $4)", c.org, ids.New(), c.key, int64(limit))
			percents := "SELECT coalesce(sum(percent), 0) FROM cap_alerts"
			for i, want := range []int{0, 0, 0, 0, 50, 50, 50, 50 + 80, 50 + 80, 50 + 80 + 100, 50 + 80 + 100} {
				w.write(c.event(1000))
				var dead atomic.Int32
				r := w.rater(rate.Config{})
				rate.OnStep(r, func(step string) error {
					if step == at && dead.Add(1) <= 2 {
						return errors.New("a crash")
					}
					return nil
				})
				stop := w.start(r)
				w.settled()
				stop()
				if got := w.number(percents); got != int64(want) {
					t.Errorf("after %d of 10 parts: alerts add up to %d, want %d", i+1, got, want)
				}
			}
			w.want("SELECT count(*) FROM cap_alerts WHERE settled_nano < cap_nano * percent / 100", 0)
			w.sound()
		})
	}
}

// Every line of usage in a statement is the sum of its requests, to the nano; a late one counts where it was booked.
func TestAStatementsUsageIsItsRequests(t *testing.T) {
	w := newWorld(t)
	e := w.epoch()
	c, other := w.customer(e, 1_000_000, 1_000_000), w.customer(e, 1_000_000, 1_000_000)
	var events []*usage.Event
	for i := range 25 {
		events = append(events, c.event(int64(100+i)), other.event(7))
	}
	late := c.event(33) // ran three days ago, in the log only now
	late.ID = idOf(time.Now().Add(-72 * time.Hour))
	late.StartedMS -= (72 * time.Hour).Milliseconds()
	late.FirstTokenMS, late.EndedMS = late.StartedMS+1, late.StartedMS+2
	w.write(append(events, late)...)
	w.rateAll()
	books := report.New(w.db, clock.System)
	owner := tenants.Actor{Org: c.org, Role: tenants.Owner}
	from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	s, err := books.Statement(t.Context(), owner, c.org, from, from.AddDate(0, 0, 3))
	if err != nil {
		t.Fatal(err)
	}
	lines, total := 0, money.Nano(0)
	for _, l := range s.Lines {
		if l.Kind != ledger.Usage {
			continue
		}
		lines++
		var line, sum money.Nano
		for _, x := range l.Entries {
			if x.Account == ledger.PrepaidPaid {
				line += x.Amount
			}
		}
		var after ids.ID
		for more := true; more; {
			u, err := books.UsageOf(t.Context(), owner, c.org, l.At, l.At.AddDate(0, 0, 1), after, 10)
			if err != nil {
				t.Fatal(err)
			}
			if u.Charged != line {
				t.Errorf("its requests cost %s, the line says %s", u.Charged, line)
			}
			for _, r := range u.List {
				sum += r.Charged
				after = r.Event.ID
				if r.Event.PriceVersion != w.version || r.Txn == ids.Nil || r.Event.Usage.Tokens() == 0 {
					t.Errorf("%+v explains nothing", r)
				}
			}
			more = u.More
		}
		if sum != line {
			t.Errorf("the pages make %s, the line says %s", sum, line)
		}
		total += line
	}
	if lines == 0 || total <= late.Charge {
		t.Errorf("%d lines, %s in all", lines, total)
	}
	w.want("SELECT coalesce(sum(charged_nano), 0) FROM usage_events WHERE org_id = '"+c.org.String()+"'", int64(total))
}

// idOf is a fresh id of another moment.
func idOf(at time.Time) ids.ID {
	id := ids.New()
	for i, ms := 5, at.UnixMilli(); i >= 0; i, ms = i-1, ms>>8 {
		id[i] = byte(ms)
	}
	return id
}
