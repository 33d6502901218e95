package webtest

import (
	"context"
	"time"

	"millrace/billing/month"
	"millrace/internal/fault"
	"millrace/internal/money"
	"millrace/web/session"
)

// firstMonth is when the fixture's first customer came.
var firstMonth = time.Date(2026, time.August, 1, 0, 0, 0, 0, time.UTC)

// monthState is what the fixture's clock and a closing say of a month.
func (w *world) monthState(start time.Time) month.Month {
	m := month.Month{Start: start, End: start.AddDate(0, 1, 0), FreezesAt: month.Freeze(start), State: month.Open}
	if !Now.Before(m.FreezesAt) {
		m.State = month.Frozen
	}
	if start.Before(time.Date(2026, time.September, 1, 0, 0, 0, 0, time.UTC)) || w.septemberClosed && start.Month() == time.September {
		m.State, m.ClosedAt, m.ClosedBy = month.Closed, m.FreezesAt.Add(9*time.Hour), "ops@millrace.example"
	}
	return m
}

// monthFigures is a customer's month: every month is the same, so balances grow.
func monthFigures(org, months int) (f month.Figures) {
	n := money.Nano(org + 1)
	f[month.CashCard], f[month.CashHand], f[month.CashReturned] = usd("300")/n, usd("1200")/n, -usd("20")/n
	f[month.Fees] = f[month.CashCard] / 30
	f[month.CashFees] = -f[month.Fees]
	f[month.ReceivableUsed], f[month.ReceivableInvoiced] = usd("410.5")/n, usd("78")/n
	f[month.ReceivablePaid], f[month.ReceivableCredited], f[month.ReceivableGivenUp] = -usd("350")/n, -usd("12")/n, -usd("5")/n
	f[month.CashHand] -= f[month.ReceivablePaid]
	f[month.DeferredAdded], f[month.DeferredUsed] = f[month.CashCard]+usd("1200")/n, -usd("940")/n
	f[month.DeferredExpired], f[month.DeferredRefunded], f[month.DeferredCorrected] = -usd("30")/n, f[month.CashReturned], usd("4")/n
	f[month.PromoGiven], f[month.PromoUsed], f[month.PromoEnded] = usd("20")/n, -usd("11")/n, -usd("4")/n
	rollFigures(&f, money.Nano(months), month.DeferredOpening, month.DeferredClosing)
	rollFigures(&f, money.Nano(months), month.PromoOpening, month.PromoClosing)
	rollFigures(&f, money.Nano(months), month.ReceivableOpening, month.ReceivableClosing)
	f[month.FromCredit], f[month.FromPromo], f[month.OnAccount], f[month.NotCharged] = -f[month.DeferredUsed], -f[month.PromoUsed], f[month.ReceivableUsed], usd("0.07")/n
	f[month.Delivered] = f[month.FromCredit] + f[month.FromPromo] + f[month.OnAccount] + f[month.NotCharged]
	f[month.Breakage], f[month.BadDebt], f[month.Refunded] = -f[month.DeferredExpired], -f[month.ReceivableGivenUp], -f[month.ReceivableCredited]
	f[month.PromoCost], f[month.Adjustments], f[month.Tax] = f[month.PromoGiven]+f[month.PromoEnded], f[month.DeferredCorrected], f[month.ReceivableInvoiced]
	f[month.CashChange] = f[month.CashCard] + f[month.CashHand] + f[month.CashReturned] + f[month.CashFees]
	f[month.Recognised] = f[month.FromCredit] + f[month.OnAccount] + f[month.Breakage]
	return f
}

// rollFigures fills a balance in that so many months of the same movements made.
func rollFigures(f *month.Figures, months money.Nano, opening, closing month.Column) {
	var moved money.Nano
	for c := opening + 1; c < closing; c++ {
		moved += f[c]
	}
	f[opening], f[closing] = moved*months, moved*(months+1)
}

// Months are four, the running one first.
func (b business) Months(context.Context) (out []month.Line, err error) {
	if b.f.state == Fresh {
		return []month.Line{{Month: b.f.monthState(monthOf(Now))}}, nil
	}
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for start := monthOf(Now); !start.Before(firstMonth); start = start.AddDate(0, -1, 0) {
		x := month.Line{Month: b.f.monthState(start)}
		for i := range b.f.orgs {
			f := monthFigures(i, 0)
			x.Figures.Add(&f)
		}
		out = append(out, x)
	}
	return out, nil
}

// Month is one of them. August is closed, September can be, October cannot, November runs.
func (b business) Month(_ context.Context, start time.Time) (r month.Report, reasons []month.Reason, err error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if start.After(Now) || start.Before(firstMonth) {
		return r, nil, fault.New(fault.NotFound, "There is no such month yet.")
	}
	r.Month = b.f.monthState(start)
	if b.f.state == Fresh {
		return r, nil, nil
	}
	for i, o := range b.f.orgs {
		row := month.Row{Org: o.ID, Name: o.Name, Figures: monthFigures(i, int(start.Month()-firstMonth.Month()))}
		r.Rows = append(r.Rows, row)
		r.Total.Add(&row.Figures)
	}
	if r.State == month.Closed {
		r.Checksum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	}
	if r.State == month.Open {
		reasons = []month.Reason{{Code: month.NotFrozen, Text: "It freezes at 00:00 on 3 December 2026 UTC; until then usage of this month joins it, and transactions may be on their way for 15 minutes more."}}
	}
	if r.State == month.Frozen && start.Month() == time.October {
		reasons = []month.Reason{{Code: month.EarlierOpen, Text: "Close September 2026 first: its closing figures are the opening ones."}, {Code: month.InvoicesDraft, Text: "Invoices that are not final: 2."}, {Code: month.Quarantined, Text: "Events in quarantine that nobody decided on: 1."}}
	}
	return r, reasons, nil
}

// DraftMonth finds two customers in October, and nobody in other months.
func (b business) DraftMonth(_ context.Context, _ session.Viewer, start time.Time) (int, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	switch m := b.f.monthState(start); {
	case m.State == month.Open:
		return 0, fault.New(fault.Conflict, "The month is open until %s: usage may still join it.", m.FreezesAt.Format("2 January 2006"))
	case start.Month() == time.October:
		return 2, nil
	}
	return 0, nil
}

// CloseMonth closes September, when its name is typed.
func (b business) CloseMonth(_ context.Context, _ session.Viewer, start time.Time, typed string) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	m := b.f.monthState(start)
	switch {
	case typed != m.Name():
		return fault.New(fault.Invalid, "Type %s to close it.", m.Name()).WithParam("confirm")
	case m.State == month.Open:
		return fault.New(fault.Conflict, "%s cannot be closed: it freezes at %s.", m.Name(), m.FreezesAt.Format(time.RFC3339))
	}
	b.f.septemberClosed = true
	return nil
}
