package month

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// settling is how long after freezing transactions may still be on their way into the database: their ids are made before
// they are committed.
const settling = 15 * time.Minute

// Reason is one thing that keeps a month from being closed.
type Reason struct {
	Code string // for programs
	Text string // a sentence for people
}

// Codes of reasons.
const (
	NotFrozen      = "not_frozen"
	EarlierOpen    = "earlier_month_open"
	InvoicesToMake = "invoices_not_made"
	InvoicesDraft  = "invoices_not_final"
	Quarantined    = "events_in_quarantine"
	NotReconciled  = "not_reconciled"
	NotClean       = "reconcile_not_clean"
	NotTied        = "figures_do_not_tie_out"
	OpeningDiffers = "opening_differs"
)

// CheckClose tells what keeps a month from being closed; nothing when it can be, or is.
func (s *Service) CheckClose(ctx context.Context, by tenants.Actor, start time.Time) (out []Reason, err error) {
	err = s.read(ctx, by, func(r *q.Queries) error {
		out, err = s.reasons(ctx, r, start)
		return err
	})
	return out, err
}

// Close keeps a month's report as it is. typed is the month's name, typed by a person who means it. A month that is closed
// stays as it is: closing it again gives the same report.
func (s *Service) Close(ctx context.Context, by tenants.Actor, start time.Time, typed string) (out Report, err error) {
	if err := by.RequireOperator(); err != nil {
		return out, err
	}
	now := s.now().Truncate(time.Microsecond)
	if start != Of(start) || start.After(now) {
		return out, errNotYet
	}
	if name := start.Format(layout); strings.TrimSpace(typed) != name {
		return out, fault.New(fault.Invalid, "Type %s to close it.", name).WithCode("confirm_month").WithParam("confirm")
	}
	err = s.db.InTx(ctx, db.System().Snapshot().Timeout(readTimeout), func(tx pgx.Tx) error {
		r := q.New(tx)
		if out, err = kept(ctx, r, start, now); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		reasons, err := s.reasons(ctx, r, start)
		if err == nil && len(reasons) > 0 {
			err = fault.New(fault.Conflict, "%s cannot be closed: %s", title(start), sentences(reasons)).WithCode(reasons[0].Code)
		}
		if err != nil {
			return err
		}
		if out, err = compute(ctx, r, start, now); err != nil {
			return err
		}
		if off := out.Total.Difference(); off != 0 {
			return fault.New(fault.Conflict, "The figures of %s leave %s USD unexplained.", title(start), off).WithCode(NotTied)
		}
		if err := opens(ctx, r, &out, now); err != nil {
			return err
		}
		out.close(now, by.Name())
		return keep(ctx, tx, by, &out)
	})
	return out, err
}

// carried are the balances that a month closes with and the next one opens with.
var carried = []struct{ opening, closing Column }{{DeferredOpening, DeferredClosing}, {PromoOpening, PromoClosing}, {ReceivableOpening, ReceivableClosing}}

// opens checks that a month opens, customer by customer, with what the month before was closed with. It does not where something
// was booked into a closed month since.
func opens(ctx context.Context, r *q.Queries, out *Report, now time.Time) error {
	before, err := kept(ctx, r, out.Start.AddDate(0, -1, 0), now)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the first month
	}
	if err != nil {
		return err
	}
	was := make(map[ids.ID]Row, len(before.Rows))
	for _, row := range before.Rows {
		was[row.Org] = row
	}
	differs := func(name string, opening, closing *Figures) error {
		for _, c := range carried {
			if a, b := opening[c.opening], closing[c.closing]; a != b {
				return fault.New(fault.Conflict, "%s opens with %s USD of %s for %s and %s was closed with %s USD: something was booked into a closed month.", title(out.Start), a,
					Columns[c.closing].Key, name, title(before.Start), b).WithCode(OpeningDiffers)
			}
		}
		return nil
	}
	for i := range out.Rows {
		row := &out.Rows[i]
		closed := was[row.Org].Figures
		if err := differs(row.Name, &row.Figures, &closed); err != nil {
			return err
		}
		delete(was, row.Org)
	}
	for _, row := range was { // nothing but zeros is left of them
		if err := differs(row.Name, &Figures{}, &row.Figures); err != nil {
			return err
		}
	}
	return nil
}

// keep writes a closed month down. Who closes it at the same moment collides with it and finds it closed.
func keep(ctx context.Context, tx pgx.Tx, by tenants.Actor, out *Report) error {
	body, sum, err := seal(out)
	if err != nil {
		return err
	}
	out.Checksum = sum
	err = q.New(tx).CloseMonth(ctx, q.CloseMonthParams{Month: out.Start, ClosedAt: out.ClosedAt, ClosedBy: out.ClosedBy, Report: body, Checksum: sum})
	if err != nil {
		return fmt.Errorf("month: close: %w", err)
	}
	figures := map[string]string{"month": out.Name(), "checksum": sum}
	for _, c := range []Column{Recognised, CashChange, DeferredClosing, ReceivableClosing} {
		figures[Columns[c].Key] = out.Total[c].String()
	}
	return audit.Append(ctx, tx, by, audit.Change{Action: "month.close", Target: out.Name(), After: figures, At: out.ClosedAt})
}

func title(start time.Time) string { return start.Format("January 2006") }

func sentences(reasons []Reason) string {
	list := make([]string, len(reasons))
	for i, x := range reasons {
		list[i] = x.Text
	}
	return strings.Join(list, " ")
}

// reasons asks everything, so that a person sees all that is left to do.
func (s *Service) reasons(ctx context.Context, r *q.Queries, start time.Time) (out []Reason, err error) {
	now := s.now()
	say := func(code, text string, args ...any) { out = append(out, Reason{code, fmt.Sprintf(text, args...)}) }
	if closed, err := r.ClosedMonths(ctx); err != nil {
		return nil, fmt.Errorf("month: which are closed: %w", err)
	} else if done, err := ordered(ctx, r, closed, start, now, say); done || err != nil {
		return nil, err
	}
	freeze := Freeze(start)
	if now.Before(freeze.Add(settling)) {
		say(NotFrozen, "It freezes at %s UTC; until then usage of this month joins it, and transactions may be on their way for %d minutes more.", freeze.Format("15:04 on 2 January 2006"), int(settling/time.Minute))
		return out, nil // nothing else can be told before
	}
	invoices, err := r.MonthInvoices(ctx, start)
	if err != nil {
		return nil, fmt.Errorf("month: invoices: %w", err)
	}
	if !invoices.Made {
		say(InvoicesToMake, "Its invoices are not made yet.")
	}
	if invoices.Drafts > 0 {
		say(InvoicesDraft, "Invoices that are not final: %d.", invoices.Drafts)
	}
	waiting, err := r.MonthQuarantined(ctx, freeze)
	if err != nil {
		return nil, fmt.Errorf("month: quarantine: %w", err)
	}
	if waiting > 0 {
		say(Quarantined, "Events in quarantine that nobody decided on: %d.", waiting)
	}
	return s.reconciled(ctx, r, freeze, invoices.FinalAt, out)
}

// ordered reports that a month is closed, and says which earlier one is not. Errors: errNoMonth before the first month.
func ordered(ctx context.Context, r *q.Queries, closed []q.ClosedMonthsRow, start, now time.Time, say func(string, string, ...any)) (done bool, err error) {
	first, err := firstMonth(ctx, r, now)
	if err != nil {
		return false, err
	}
	known := map[time.Time]bool{}
	for _, c := range closed {
		known[c.Month.UTC()] = true
	}
	if known[start] {
		return true, nil
	}
	if start.Before(first) {
		return false, errNoMonth
	}
	for before := first; before.Before(start); before = before.AddDate(0, 1, 0) {
		if !known[before] {
			say(EarlierOpen, "Close %s first: its closing figures are the opening ones.", title(before))
			break
		}
	}
	return false, nil
}

// reconciled asks the last comparison of the books: it must cover the month, have seen its invoices as they are, and explain
// everything.
func (s *Service) reconciled(ctx context.Context, r *q.Queries, freeze, final time.Time, out []Reason) ([]Reason, error) {
	run, err := r.MonthReconciled(ctx)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("month: the last comparison: %w", err)
	case err != nil || run.Watermark.Before(freeze) || run.At.Before(freeze):
		return append(out, Reason{NotReconciled, "The books were not compared since it froze: run the comparison."}), nil
	case !run.At.After(final):
		return append(out, Reason{NotReconciled, "The books were not compared since the last of its invoices became final: run the comparison."}), nil
	case run.Unexplained:
		return append(out, Reason{NotClean, "The last comparison of the books found differences that nothing explains."}), nil
	}
	return out, nil
}
