package month_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/billing/ledger"
	"millrace/billing/month"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// story is a customer's history as it is told in words: what each step does to which figure, by month.
type story struct {
	w                    *world
	org                  ids.ID
	figures              map[time.Time]*month.Figures
	paid, promo, account money.Nano // what is left, and what is owed
	lost                 money.Nano // given up
	last                 undoable
}

type undoable struct {
	entries []ledger.Entry
	tell    func(f *month.Figures, sign money.Nano)
}

func (s *story) of(at time.Time) *month.Figures {
	start := month.Of(at)
	if s.figures[start] == nil {
		s.figures[start] = &month.Figures{}
	}
	return s.figures[start]
}

// usageMonth is the month that usage of one moment belongs to, booked at another: said once more, in hours and not in days.
func usageMonth(booked, of time.Time) time.Time {
	if start := month.Of(of); booked.Before(month.Freeze(start)) {
		return start
	}
	start := month.Of(booked)
	if booked.Before(month.Freeze(start.AddDate(0, -1, 0))) {
		return start.AddDate(0, -1, 0)
	}
	return start
}

var steps = map[string]func(s *story, at time.Time, n money.Nano, late time.Duration){
	"card": func(s *story, at time.Time, n money.Nano, _ time.Duration) {
		s.w.post(s.org, at, ledger.Topup, ledger.Debit(ledger.StripeClearing, n), ledger.Credit(ledger.PrepaidPaid, n))
		s.w.post(s.org, at, ledger.Adjustment, ledger.Debit(ledger.Fees, n/30+1), ledger.Credit(ledger.StripeClearing, n/30+1))
		f := s.of(at)
		f[month.CashCard], f[month.DeferredAdded] = f[month.CashCard]+n, f[month.DeferredAdded]+n
		f[month.CashFees], f[month.Fees] = f[month.CashFees]-n/30-1, f[month.Fees]+n/30+1
		s.paid += n
	},
	"wire": func(s *story, at time.Time, n money.Nano, _ time.Duration) {
		s.last = undoable{[]ledger.Entry{ledger.Debit(ledger.Cash, n), ledger.Credit(ledger.PrepaidPaid, n)}, func(f *month.Figures, sign money.Nano) {
			if sign > 0 {
				f[month.CashHand], f[month.DeferredAdded] = f[month.CashHand]+n, f[month.DeferredAdded]+n
			} else {
				f[month.CashCorrected], f[month.DeferredCorrected] = f[month.CashCorrected]-n, f[month.DeferredCorrected]-n
			}
			s.paid += sign * n
		}}
		s.w.post(s.org, at, ledger.Grant, s.last.entries...)
		s.last.tell(s.of(at), 1)
	},
	"gift": func(s *story, at time.Time, n money.Nano, _ time.Duration) {
		s.last = undoable{[]ledger.Entry{ledger.Debit(ledger.PromoCost, n), ledger.Credit(ledger.PrepaidPromo, n)}, func(f *month.Figures, sign money.Nano) {
			column := month.PromoGiven
			if sign < 0 {
				column = month.PromoCorrected
			}
			f[column], f[month.PromoCost] = f[column]+sign*n, f[month.PromoCost]+sign*n
			s.promo += sign * n
		}}
		s.w.post(s.org, at, ledger.Grant, s.last.entries...)
		s.last.tell(s.of(at), 1)
	},
	"adjust": func(s *story, at time.Time, n money.Nano, late time.Duration) {
		if late%2 == 0 {
			n = -n
		}
		s.last = undoable{[]ledger.Entry{{Account: ledger.Adjustments, Amount: n}, {Account: ledger.PrepaidPaid, Amount: -n}}, func(f *month.Figures, sign money.Nano) {
			f[month.Adjustments], f[month.DeferredCorrected] = f[month.Adjustments]+sign*n, f[month.DeferredCorrected]+sign*n
			s.paid += sign * n
		}}
		s.w.post(s.org, at, ledger.Adjustment, s.last.entries...)
		s.last.tell(s.of(at), 1)
	},
	"reverse": func(s *story, at time.Time, _ money.Nano, _ time.Duration) {
		if s.last.tell == nil {
			return
		}
		var opposite []ledger.Entry
		for _, e := range s.last.entries {
			opposite = append(opposite, ledger.Entry{Account: e.Account, Amount: -e.Amount})
		}
		s.w.post(s.org, at, ledger.Reversal, opposite...)
		s.last.tell(s.of(at), -1)
		s.last = undoable{}
	},
	"use": func(s *story, at time.Time, n money.Nano, late time.Duration) {
		over := n / 7
		paid, promo, account := s.w.use(s.org, at, at.Add(-late), n, over)
		f := s.of(usageMonth(at, at.Add(-late)))
		f[month.Delivered] += n + over
		f[month.NotCharged] += over
		f[month.FromCredit], f[month.DeferredUsed] = f[month.FromCredit]+paid, f[month.DeferredUsed]-paid
		f[month.FromPromo], f[month.PromoUsed] = f[month.FromPromo]+promo, f[month.PromoUsed]-promo
		f[month.OnAccount], f[month.ReceivableUsed] = f[month.OnAccount]+account, f[month.ReceivableUsed]+account
		s.paid, s.promo, s.account = s.paid-paid, s.promo-promo, s.account+account
	},
	"expire": func(s *story, at time.Time, n money.Nano, _ time.Duration) {
		f := s.of(at)
		if n = min(n, s.paid); n > 0 {
			s.w.post(s.org, at, ledger.Expiry, ledger.Debit(ledger.PrepaidPaid, n), ledger.Credit(ledger.Breakage, n))
			f[month.Breakage], f[month.DeferredExpired] = f[month.Breakage]+n, f[month.DeferredExpired]-n
			s.paid -= n
		}
		if n = min(n, s.promo); n > 0 {
			s.w.post(s.org, at, ledger.Expiry, ledger.Debit(ledger.PrepaidPromo, n), ledger.Credit(ledger.PromoCost, n))
			f[month.PromoCost], f[month.PromoEnded] = f[month.PromoCost]-n, f[month.PromoEnded]-n
			s.promo -= n
		}
	},
	"refund": func(s *story, at time.Time, n money.Nano, _ time.Duration) {
		s.w.post(s.org, at, ledger.Refund, ledger.Debit(ledger.PrepaidPaid, n), ledger.Credit(ledger.StripeClearing, n))
		f := s.of(at)
		f[month.CashReturned], f[month.DeferredRefunded] = f[month.CashReturned]-n, f[month.DeferredRefunded]-n
		s.paid -= n
	},
	"invoice": func(s *story, at time.Time, n money.Nano, _ time.Duration) {
		tax, cents := n/5+1, n%1000+1
		s.w.post(s.org, at, ledger.Invoice, ledger.Debit(ledger.Receivable, tax+cents), ledger.Credit(ledger.Tax, tax), ledger.Credit(ledger.Rounding, cents))
		f := s.of(at)
		f[month.Tax], f[month.Rounding], f[month.ReceivableInvoiced] = f[month.Tax]+tax, f[month.Rounding]-cents, f[month.ReceivableInvoiced]+tax+cents
		s.account += tax + cents
	},
	"pay": func(s *story, at time.Time, n money.Nano, late time.Duration) {
		if n = min(n, s.account); n <= 0 {
			return
		}
		f, fee := s.of(at), n/40+1
		s.account -= n
		f[month.ReceivablePaid] -= n
		if late%2 == 0 {
			s.w.post(s.org, at, ledger.Payment, ledger.Debit(ledger.Cash, n), ledger.Credit(ledger.Receivable, n))
			f[month.CashHand] += n
			return
		}
		s.w.post(s.org, at, ledger.Payment, ledger.Debit(ledger.StripeClearing, n), ledger.Credit(ledger.Receivable, n), ledger.Debit(ledger.Fees, fee), ledger.Credit(ledger.StripeClearing, fee))
		f[month.CashCard], f[month.CashFees], f[month.Fees] = f[month.CashCard]+n, f[month.CashFees]-fee, f[month.Fees]+fee
	},
	"credit note": func(s *story, at time.Time, n money.Nano, _ time.Duration) {
		if n = min(n, s.account); n <= 0 {
			return
		}
		s.w.post(s.org, at, ledger.Refund, ledger.Debit(ledger.Refunds, n), ledger.Credit(ledger.Receivable, n))
		f := s.of(at)
		f[month.Refunded], f[month.ReceivableCredited] = f[month.Refunded]+n, f[month.ReceivableCredited]-n
		s.account -= n
	},
	"payment goes back": func(s *story, at time.Time, n money.Nano, _ time.Duration) { // a refund or a dispute of an invoice: as invoices book it
		s.w.post(s.org, at, ledger.Refund, ledger.Debit(ledger.Receivable, n), ledger.Credit(ledger.StripeClearing, n))
		f := s.of(at)
		f[month.CashReturned], f[month.ReceivableCredited] = f[month.CashReturned]-n, f[month.ReceivableCredited]+n
		s.account += n
	},
	"give up": func(s *story, at time.Time, n money.Nano, _ time.Duration) {
		if n = min(n, s.account); n <= 0 {
			return
		}
		s.w.post(s.org, at, ledger.Invoice, ledger.Debit(ledger.BadDebt, n), ledger.Credit(ledger.Receivable, n))
		f := s.of(at)
		f[month.BadDebt], f[month.ReceivableGivenUp] = f[month.BadDebt]+n, f[month.ReceivableGivenUp]-n
		s.account -= n
		s.lost += n
	},
	"recover": func(s *story, at time.Time, n money.Nano, _ time.Duration) { // money that comes after it was given up
		if n = min(n, s.lost); n <= 0 {
			return
		}
		s.w.post(s.org, at, ledger.Payment, ledger.Debit(ledger.StripeClearing, n), ledger.Credit(ledger.BadDebt, n))
		f := s.of(at)
		f[month.CashCard], f[month.ReceivablePaid] = f[month.CashCard]+n, f[month.ReceivablePaid]-n
		f[month.BadDebt], f[month.ReceivableGivenUp] = f[month.BadDebt]-n, f[month.ReceivableGivenUp]+n
		s.lost -= n
	},
}

// draw makes a history of some steps in order of time.
func (s *story) draw(rt *rapid.T, names []string) {
	count := rapid.IntRange(1, 12).Draw(rt, "steps")
	var times []int
	for range count {
		times = append(times, rapid.IntRange(0, int(now.Sub(september)/time.Minute)-1).Draw(rt, "minute"))
	}
	slices.Sort(times)
	for _, minute := range times {
		name := rapid.SampledFrom(names).Draw(rt, "step")
		late := time.Duration(rapid.IntRange(0, 5*24*60).Draw(rt, "late")) * time.Minute
		n := money.Nano(rapid.Int64Range(1, 1_000_000_000_000).Draw(rt, "nano"))
		at := september.Add(time.Duration(minute) * time.Minute)
		if at.Add(-late).Before(september) {
			late = 0
		}
		steps[name](s, at, n, late/time.Minute*time.Minute)
	}
}

// finish rolls the balances over the months and adds up what is added up.
func (s *story) finish() {
	balances := map[month.Column][]month.Column{
		month.DeferredOpening:   {month.DeferredAdded, month.DeferredUsed, month.DeferredExpired, month.DeferredRefunded, month.DeferredCorrected, month.DeferredClosing},
		month.PromoOpening:      {month.PromoGiven, month.PromoUsed, month.PromoEnded, month.PromoCorrected, month.PromoClosing},
		month.ReceivableOpening: {month.ReceivableUsed, month.ReceivableInvoiced, month.ReceivablePaid, month.ReceivableCredited, month.ReceivableGivenUp, month.ReceivableCorrected, month.ReceivableClosing},
	}
	for opening, rest := range balances {
		var have money.Nano
		for _, start := range months {
			f := s.of(start)
			f[opening] = have
			for _, c := range rest[:len(rest)-1] {
				have += f[c]
			}
			f[rest[len(rest)-1]] = have
		}
	}
	for _, start := range months {
		f := s.of(start)
		f[month.CashChange] = f[month.CashCard] + f[month.CashHand] + f[month.CashReturned] + f[month.CashFees] + f[month.CashCorrected]
		f[month.Recognised] = f[month.FromCredit] + f[month.OnAccount] + f[month.Breakage]
	}
}

func TestEveryColumnTiesOutWithTheLedger(t *testing.T) {
	w := newWorld(t)
	names := slices.Sorted(maps.Keys(steps))
	told := map[ids.ID]*story{}
	rapid.Check(t, func(rt *rapid.T) {
		for _, name := range []string{"a", "b"} {
			s := &story{w: w, org: w.customer(name), figures: map[time.Time]*month.Figures{}}
			s.draw(rt, names)
			s.finish()
			told[s.org] = s
		}
		w.compare(rt, told)
	})
}

// compare holds every month's report against the stories, row by row and in sum, and against the ledger by account.
func (w *world) compare(rt *rapid.T, told map[ids.ID]*story) {
	var whole, before month.Figures
	for i, start := range months {
		r := w.report(start)
		var sum month.Figures
		seen := map[ids.ID]bool{}
		for _, row := range r.Rows {
			seen[row.Org] = true
			sum.Add(&row.Figures)
			same(rt, row.Org.String()+" in "+r.Name(), row.Figures, *told[row.Org].of(start))
			if off := row.Figures.Difference(); off != 0 {
				rt.Fatalf("%s in %s leaves %s unexplained", row.Org, r.Name(), off)
			}
		}
		for org, s := range told {
			if !seen[org] && *s.of(start) != (month.Figures{}) {
				rt.Fatalf("%s is missing in %s: %v", org, r.Name(), *s.of(start))
			}
		}
		same(rt, "the customers' sum of "+r.Name(), r.Total, sum)
		if f := r.Total; f[month.FromCredit]+f[month.FromPromo]+f[month.OnAccount]+f[month.NotCharged] != f[month.Delivered] {
			rt.Fatalf("what was delivered in %s is not what paid for it: %v", r.Name(), f)
		}
		if i > 0 {
			for opening, closing := range map[month.Column]month.Column{month.DeferredOpening: month.DeferredClosing, month.PromoOpening: month.PromoClosing, month.ReceivableOpening: month.ReceivableClosing} {
				if r.Total[opening] != before[closing] {
					rt.Fatalf("%s opens with %s = %s, the month before closed with %s", r.Name(), month.Columns[opening].Key, r.Total[opening], before[closing])
				}
			}
		}
		whole.Add(&r.Total)
		before = r.Total
	}
	w.tiesOut(rt, whole, before)
}

func same(rt *rapid.T, what string, got, want month.Figures) {
	rt.Helper()
	for c := range got {
		if got[c] != want[c] {
			rt.Errorf("%s: %s is %s, want %s", what, month.Columns[c].Key, got[c], want[c])
		}
	}
	if got != want {
		rt.FailNow()
	}
}

// tiesOut compares the sum of all months with the accounts as they stand.
func (w *world) tiesOut(rt *rapid.T, whole, last month.Figures) {
	accounts := map[string]money.Nano{}
	w.in(func(tx pgx.Tx) error {
		clear(accounts)
		rows, err := tx.Query(w.t.Context(), "SELECT account, sum(amount_nano)::bigint FROM ledger_entries GROUP BY account")
		if err != nil {
			return err
		}
		var account string
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&account, &n}, func() error { accounts[account] = money.Nano(n); return nil })
		return err
	})
	for account, n := range map[string]money.Nano{
		"revenue": -whole[month.Delivered], "overrun": whole[month.NotCharged], "breakage": -whole[month.Breakage], "promo_cost": whole[month.PromoCost],
		"refunds": whole[month.Refunded], "tax": -whole[month.Tax], "fees": whole[month.Fees], "bad_debt": whole[month.BadDebt], "adjustments": whole[month.Adjustments],
		"rounding": whole[month.Rounding], "prepaid_paid": -last[month.DeferredClosing], "prepaid_promo": -last[month.PromoClosing], "receivable": last[month.ReceivableClosing],
	} {
		if accounts[account] != n {
			rt.Errorf("the ledger's account %s is at %s, the months say %s", account, accounts[account], n)
		}
	}
	if cash := accounts["cash"] + accounts["stripe_clearing"]; cash != whole[month.CashChange] {
		rt.Errorf("cash and clearing are at %s, the months say %s", cash, whole[month.CashChange])
	}
}

func TestUsageJoinsItsMonthUntilThatFreezes(t *testing.T) {
	w := newWorld(t)
	org := w.customer("a")
	last := december.Add(-time.Second) // of November
	w.use(org, last, last, 1, 0)
	w.use(org, december.Add(47*time.Hour+59*time.Minute), last, 10, 0)
	w.use(org, december.Add(48*time.Hour), last, 100, 0)                 // too late: December's
	w.use(org, december.Add(time.Hour), october.Add(time.Hour), 1000, 0) // October is long frozen: November's, which is not
	w.use(org, december.Add(time.Hour), december, 10_000, 0)
	if r := w.report(november); r.Total[month.OnAccount] != 1011 || r.State != month.Frozen {
		t.Errorf("November is %s with %d on account", r.State, r.Total[month.OnAccount])
	}
	if r := w.report(december); r.Total[month.OnAccount] != 10_100 || r.Total[month.ReceivableOpening] != 1011 || r.State != month.Open {
		t.Errorf("December is %s with %d on account", r.State, r.Total[month.OnAccount])
	}
	list, err := w.List(t.Context(), w.root)
	if err != nil || len(list) != 4 || list[0].Name() != "2026-12" || list[1].Figures[month.OnAccount] != 1011 || list[3].State != month.Frozen {
		t.Errorf("the list: %+v, %v", list, err)
	}
}

func TestOnlyOperatorsReadMonths(t *testing.T) {
	w := newWorld(t)
	org := w.customer("a")
	owner := tenants.Actor{User: ids.New(), Org: org, Role: tenants.Owner}
	_, list := w.List(t.Context(), owner)
	_, report := w.Report(t.Context(), owner, november)
	_, check := w.CheckClose(t.Context(), owner, november)
	_, closing := w.Close(t.Context(), owner, november, "2026-11")
	for what, err := range map[string]error{"list": list, "report": report, "check": check, "close": closing} {
		if !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
