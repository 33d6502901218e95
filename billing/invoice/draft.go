package invoice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// readTimeout bounds each statement that reads a month of requests, orgLimit all that one organization's draft takes.
const (
	readTimeout = 10 * time.Minute
	orgLimit    = 15 * time.Minute
)

// Draft makes the invoices of a month that is frozen, and gives how many were made or drawn anew. Operators and the worker;
// what is ready or final stays as it is.
func (s *Service) Draft(ctx context.Context, by tenants.Actor, month time.Time) (int, error) {
	if err := by.RequireOperator(); err != nil {
		return 0, err
	}
	return s.draftAll(ctx, month, func(ids.ID) bool { return false })
}

// draftAll drafts for everybody who owes something but those who rest. What goes wrong with one organization holds nobody else up.
func (s *Service) draftAll(ctx context.Context, month time.Time, rests func(org ids.ID) bool) (made int, err error) {
	var c cover
	var orgs []ids.ID
	if err := s.frozen(ctx, month); err != nil {
		return 0, err
	}
	err = s.c.DB.InTx(ctx, db.System().ReadOnly().Timeout(readTimeout), func(tx pgx.Tx) (err error) {
		r := q.New(tx)
		if c, err = coverOf(ctx, r, month); err != nil {
			return err
		}
		orgs, err = r.OrgsToInvoice(ctx, q.OrgsToInvoiceParams{FromDay: day(c.from), ToDay: day(c.to), FromID: ids.Floor(c.from), FreezeID: ids.Floor(c.to),
			Month: c.month, LateID: ids.Floor(c.late)})
		return err
	})
	if err != nil {
		return 0, wrapped("who owes something", err)
	}
	var failed []error
	for _, org := range orgs {
		if ctx.Err() != nil {
			failed = append(failed, ctx.Err())
			break
		}
		if rests(org) {
			failed = append(failed, fmt.Errorf("invoice: the draft for %s waits: %w", ids.Format(ids.Org, org), errRests))
			continue
		}
		fresh, err := s.draftOne(ctx, org, c)
		if err != nil {
			s.rests.begin(rest{month: month, id: org}, s.now())
			failed = append(failed, fmt.Errorf("invoice: draft for %s: %w", ids.Format(ids.Org, org), err))
		}
		if fresh {
			made++
		}
	}
	if err := errors.Join(append(failed, s.at("all drafted"))...); err != nil {
		return made, err
	}
	err = s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		return r.MarkMonthDrafted(ctx, q.MarkMonthDraftedParams{Month: month, DraftedAt: s.now()})
	})
	return made, wrapped("mark a month", err)
}

func (s *Service) draftOne(ctx context.Context, org ids.ID, c cover) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, orgLimit)
	defer cancel()
	return s.draft(ctx, org, c)
}

// draft makes one organization's invoice, unless it is past that.
func (s *Service) draft(ctx context.Context, org ids.ID, c cover) (fresh bool, err error) {
	settled, err := s.past(ctx, org, c)
	if err != nil || settled {
		return false, err
	}
	err = s.c.DB.InTx(ctx, db.System().Timeout(readTimeout), func(tx pgx.Tx) error {
		months, err := c.accounts(ctx, q.New(tx), org)
		if err != nil {
			return err
		}
		sheet, err := s.sheet(ctx, tx, org, c, months, usedBy)
		if err != nil || sheet.total.receivable == 0 {
			return err
		}
		fresh, err = s.keep(ctx, q.New(tx), org, c, sheet)
		return err
	})
	return fresh, err
}

// past reports whether the invoice is there and ready or final. It waits for whoever books something of the organization
// right now: what began before the freeze is committed when it returns, and holds nobody up while the month is read.
func (s *Service) past(ctx context.Context, org ids.ID, c cover) (past bool, err error) {
	err = s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		state, err := r.InvoiceStateOf(ctx, q.InvoiceStateOfParams{OrgID: org, Month: c.month})
		if err == nil && State(state) != Draft {
			past = true
			return nil
		}
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		_, err = ledger.Lock(ctx, tx, []ids.ID{org})
		return err
	})
	return past, err
}

// reader reads what an organization used in the covered parts.
type reader func(ctx context.Context, tx q.DBTX, org ids.ID, parts []part) ([]used, error)

// sheet reads what a month's invoice says, by what the covered transactions did.
func (s *Service) sheet(ctx context.Context, tx pgx.Tx, org ids.ID, c cover, months map[time.Time]account, read reader) (sheet, error) {
	r := q.New(tx)
	all, err := read(ctx, tx, org, c.parts(months))
	if err != nil {
		return sheet{}, err
	}
	var models []ids.ID
	for i, u := range all {
		all[i].month = c.shown(u.month)
		models = append(models, u.model)
	}
	rows, err := r.ModelNames(ctx, models)
	if err != nil {
		return sheet{}, fmt.Errorf("invoice: models: %w", err)
	}
	names := make(map[ids.ID]string, len(rows))
	for _, m := range rows {
		names[m.ID] = m.Name
	}
	return newSheet(c.month, all, months, names), nil
}

// keep stores a draft and its lines.
func (s *Service) keep(ctx context.Context, r *q.Queries, org ids.ID, c cover, sh sheet) (fresh bool, err error) {
	state := Ready
	if sh.problem != "" {
		state = Draft
	}
	row, err := r.KeepInvoiceDraft(ctx, q.KeepInvoiceDraftParams{OrgID: org, ID: ids.New(), Month: c.month, State: string(state), CoveredFrom: c.late, CoveredTo: c.to,
		ChargedNano: int64(sh.total.charged()), PromoNano: int64(sh.total.promo), PrepaidNano: int64(sh.total.prepaid), ReceivableNano: int64(sh.total.receivable),
		OverrunNano: int64(sh.total.overrun), Problem: sh.problem, DraftedAt: s.now(), Cents: sh.cents})
	if errors.Is(err, pgx.ErrNoRows) { // somebody made it final meanwhile
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("invoice: keep a draft: %w", err)
	}
	if err := r.DropInvoiceLines(ctx, q.DropInvoiceLinesParams{OrgID: org, InvoiceID: row.ID}); err != nil {
		return false, fmt.Errorf("invoice: lines: %w", err)
	}
	if err := s.at("lines"); err != nil {
		return false, err
	}
	if err := r.InsertInvoiceLines(ctx, columns(row.OrgID, row.ID, sh.lines[:min(len(sh.lines), MaxLines)])); err != nil {
		return false, fmt.Errorf("invoice: lines: %w", err)
	}
	return true, s.at("drafted")
}

// noUnit stands for a unit price that varied.
const noUnit = -1

func columns(org, id ids.ID, lines []Line) q.InsertInvoiceLinesParams {
	a := q.InsertInvoiceLinesParams{OrgID: org, InvoiceID: id}
	for i, l := range lines {
		unit := int64(noUnit)
		if l.Unit != nil {
			unit = int64(*l.Unit)
		}
		a.Positions, a.Kinds, a.Months = append(a.Positions, int32(i+1)), append(a.Kinds, string(l.Kind)), append(a.Months, l.Month)
		a.Models, a.Names, a.Versions = append(a.Models, l.Model), append(a.Names, l.Name), append(a.Versions, l.Version)
		a.Services, a.Classes, a.Quantities = append(a.Services, l.Service), append(a.Classes, l.Class), append(a.Quantities, l.Quantity)
		a.Units, a.Amounts, a.Cents = append(a.Units, unit), append(a.Amounts, int64(l.Amount)), append(a.Cents, l.Cents)
	}
	return a
}

// wrapped names what failed; faults and nil go through.
func wrapped(what string, err error) error {
	if err == nil || fault.Of(err).Kind != fault.Internal {
		return err
	}
	return fmt.Errorf("invoice: %s: %w", what, err)
}
