package tenants

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// OrgChange names what to change; nil leaves a field as it is.
type OrgChange struct {
	Name          *string
	TimeZone      *string
	FailurePolicy *string // operators only: it decides who bears the cost of a failure
	PriceBook     *string // operators only
}

// UpdateOrg changes an organization's name and terms. Gateways use the new ones at once.
func (s *Service) UpdateOrg(ctx context.Context, by Actor, id ids.ID, c OrgChange) (org Org, err error) {
	if err := by.Require(OrgManage, id); err != nil {
		return Org{}, err
	}
	if c.FailurePolicy != nil || c.PriceBook != nil {
		if err := by.RequireOperator(); err != nil {
			return Org{}, err
		}
	}
	err = s.changeOrg(ctx, by, id, "org.update", func(rows *q.Queries, old q.Org) (q.Org, error) {
		next := q.UpdateOrgParams{OrgID: id, Name: or(c.Name, old.Name), TimeZone: or(c.TimeZone, old.TimeZone),
			FailurePolicy: or(c.FailurePolicy, old.FailurePolicy), PriceBook: or(c.PriceBook, old.PriceBook)}
		if next.Name, err = Name("name", next.Name, maxOrgName); err != nil {
			return q.Org{}, err
		}
		if err := validateTerms(next.TimeZone, next.FailurePolicy, next.PriceBook); err != nil {
			return q.Org{}, err
		}
		if next.PriceBook != old.PriceBook {
			if err := priced(ctx, rows, next.PriceBook); err != nil {
				return q.Org{}, err
			}
		}
		return rows.UpdateOrg(ctx, next)
	}, &org)
	return org, err
}

// priced refuses a book without any price, most likely a name that was typed wrong, as contracts do. The standard book is there
// before its first price is.
func priced(ctx context.Context, rows *q.Queries, book string) error {
	if book == StandardBook {
		return nil
	}
	known, err := rows.PriceBookKnown(ctx, book)
	if err != nil {
		return fmt.Errorf("tenants: prices of a book: %w", err)
	}
	if !known {
		return fault.New(fault.Conflict, "The book %s has no price yet. Publish its prices first.", book).WithParam("price_book").WithCode("book_without_prices")
	}
	return nil
}

// SuspendOrg refuses the organization's requests from now on. Operators only. Again makes it another suspension: whoever made
// the one before (dunning) does not end this one.
func (s *Service) SuspendOrg(ctx context.Context, by Actor, id ids.ID) (Org, error) {
	now := s.now()
	return s.setSuspended(ctx, by, id, "org.suspend", &now)
}

// RestoreOrg ends a suspension. Operators only.
func (s *Service) RestoreOrg(ctx context.Context, by Actor, id ids.ID) (Org, error) {
	return s.setSuspended(ctx, by, id, "org.restore", nil)
}

func (s *Service) setSuspended(ctx context.Context, by Actor, id ids.ID, action string, at *time.Time) (org Org, err error) {
	if err := by.RequireOperator(); err != nil {
		return Org{}, err
	}
	err = s.changeOrg(ctx, by, id, action, func(rows *q.Queries, old q.Org) (q.Org, error) {
		switch {
		case at == nil && old.SuspendedAt == nil:
			return old, nil
		case at != nil && old.SuspendedAt != nil && !at.After(*old.SuspendedAt):
			later := old.SuspendedAt.Add(time.Microsecond) // it must differ, whatever clocks say
			at = &later
		}
		return rows.SetOrgSuspended(ctx, q.SetOrgSuspendedParams{OrgID: id, SuspendedAt: at})
	}, &org)
	return org, err
}

// changeOrg locks the organization, changes it, audits a real change, and tells gateways.
func (s *Service) changeOrg(ctx context.Context, by Actor, id ids.ID, action string, change func(*q.Queries, q.Org) (q.Org, error), out *Org) error {
	changed := false
	err := s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		old, err := rows.LockOrg(ctx, id)
		if err != nil {
			return Found(err, "organization")
		}
		row, err := change(rows, old)
		if err != nil {
			return err
		}
		*out = orgOf(row)
		if changed = !orgOf(row).equal(orgOf(old)); !changed {
			return nil
		}
		return s.audit(ctx, tx, by, id, action, ids.Format(ids.Org, id), orgOf(old), *out)
	})
	if err == nil && changed {
		s.noticeOrg(ctx, id)
	}
	return err
}

func (o Org) equal(p Org) bool {
	sameSuspension := o.SuspendedAt == p.SuspendedAt || o.SuspendedAt != nil && p.SuspendedAt != nil && o.SuspendedAt.Equal(*p.SuspendedAt)
	o.SuspendedAt, p.SuspendedAt = nil, nil
	return sameSuspension && o == p
}

func or(changed *string, old string) string {
	if changed != nil {
		return *changed
	}
	return old
}
