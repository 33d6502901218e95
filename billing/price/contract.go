package price

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Contract gives an organization another book for a while. What is agreed stays: only its end can be moved, while that lies
// ahead. An organization has at most one at any moment.
type Contract struct {
	ID        ids.ID
	Org       ids.ID
	Book      string
	StartsAt  time.Time
	EndsAt    *time.Time // exclusive; nil = until it is ended; StartsAt = taken back before it began
	Note      string
	CreatedBy string
	CreatedAt time.Time
}

// Holds reports whether the contract is in effect at a moment.
func (c *Contract) Holds(at time.Time) bool {
	return !at.Before(c.StartsAt) && (c.EndsAt == nil || at.Before(*c.EndsAt))
}

// NewContract asks for a contract.
type NewContract struct {
	Org      ids.ID
	Book     string
	StartsAt time.Time  // zero = now
	EndsAt   *time.Time // nil = open
	Note     string
}

func (n NewContract) contract(now time.Time) (Contract, error) {
	c := Contract{ID: ids.New(), Org: n.Org, Book: n.Book, StartsAt: n.StartsAt.UTC(), Note: strings.TrimSpace(n.Note), CreatedAt: now}
	if !bookName.MatchString(c.Book) {
		return c, badBook()
	}
	if len(c.Note) > maxNoteBytes {
		return c, fault.New(fault.Invalid, "The note may have at most %d bytes.", maxNoteBytes).WithParam("note")
	}
	switch {
	case n.StartsAt.IsZero(), n.StartsAt.Before(now) && now.Sub(n.StartsAt) <= nowTolerance:
		c.StartsAt = now
	case n.StartsAt.Before(now):
		return c, fault.New(fault.Invalid, "A contract cannot begin in the past: what was charged stays.").WithParam("starts_at")
	case n.StartsAt.Sub(now) > maxAhead:
		return c, fault.New(fault.Invalid, "A contract can begin at most two years ahead.").WithParam("starts_at")
	}
	c.StartsAt = c.StartsAt.Truncate(time.Millisecond) // events tell their start in milliseconds: both sides must agree
	if n.EndsAt != nil {
		end := n.EndsAt.UTC().Truncate(time.Millisecond)
		if c.EndsAt = &end; end.Sub(c.StartsAt) < CancelNotice {
			return c, fault.New(fault.Invalid, "A contract lasts at least a minute.").WithParam("ends_at")
		}
		if end.After(clock.Latest) {
			return c, fault.New(fault.Invalid, "A contract ends at most on %s. Leave the end out for one that stays open.", clock.LatestText).WithParam("ends_at")
		}
	}
	return c, nil
}

// AddContract gives an organization a book for a while. Operators only. A contract at the same time, or a book without any
// price, is a Conflict.
func (s *Service) AddContract(ctx context.Context, by tenants.Actor, n NewContract) (Contract, error) {
	if err := by.RequireOperator(); err != nil {
		return Contract{}, err
	}
	c, err := n.contract(s.clock.Now().UTC().Truncate(time.Microsecond))
	if err != nil {
		return Contract{}, err
	}
	c.CreatedBy = by.Name()
	err = s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		queries := q.New(tx)
		if _, err := queries.GetOrg(ctx, c.Org); err != nil {
			return tenants.Found(err, "organization")
		}
		known, err := queries.PriceBookKnown(ctx, c.Book)
		if err != nil {
			return fmt.Errorf("price: contract: %w", err)
		}
		if !known && c.Book != Standard {
			return fault.New(fault.Conflict, "The book %s has no price yet. Publish its prices first.", c.Book).WithParam("book").WithCode("book_without_prices")
		}
		_, err = queries.InsertPriceContract(ctx, q.InsertPriceContractParams{OrgID: c.Org, ID: c.ID, Book: c.Book, StartsAt: c.StartsAt, EndsAt: c.EndsAt,
			Note: c.Note, CreatedBy: c.CreatedBy, CreatedAt: c.CreatedAt})
		if err != nil {
			return overlap(err)
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: c.Org, Action: "contract.create", Target: ids.Format(ids.Pact, c.ID), After: c, At: s.clock.Now().UTC()})
	})
	if err != nil {
		return Contract{}, err
	}
	s.tell(ctx)
	return c, nil
}

// overlap says in words what the exclusion constraint found.
func overlap(err error) error {
	const exclusionViolation = "23P01"
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == exclusionViolation {
		return fault.New(fault.Conflict, "The customer has another contract at that time. End it first.").WithCode("contract_overlaps").WithCause(err)
	}
	return fmt.Errorf("price: contract: %w", err)
}

// EndContract moves the end of a contract: to a moment at least CancelNotice ahead, since gateways may hold an older
// schedule that long; zero = as soon as that allows, and one that has yet to begin is then taken back. Operators only. One
// that is over, or a moment too near, is a Conflict.
func (s *Service) EndContract(ctx context.Context, by tenants.Actor, org, id ids.ID, at time.Time) (Contract, error) {
	if err := by.RequireOperator(); err != nil {
		return Contract{}, err
	}
	var after Contract
	err := s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		row, err := q.New(tx).LockPriceContract(ctx, q.LockPriceContractParams{OrgID: org, ID: id})
		if err != nil {
			return tenants.Found(err, "contract")
		}
		before := contract(q.PriceContract{OrgID: row.OrgID, ID: row.ID, Book: row.Book, StartsAt: row.StartsAt, EndsAt: row.EndsAt, Note: row.Note,
			CreatedBy: row.CreatedBy, CreatedAt: row.CreatedAt})
		end, err := before.endAt(at, row.Now)
		if err != nil {
			return err
		}
		changed, err := q.New(tx).EndPriceContract(ctx, q.EndPriceContractParams{OrgID: org, ID: id, EndsAt: end})
		if err != nil {
			return overlap(err)
		}
		after = contract(changed)
		return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: "contract.end", Target: ids.Format(ids.Pact, id), Before: before, After: after, At: s.clock.Now().UTC()})
	})
	if err != nil {
		return Contract{}, err
	}
	s.tell(ctx)
	return after, nil
}

// endAt is the end that a contract gets by the database's time.
func (c *Contract) endAt(at, now time.Time) (time.Time, error) {
	soonest := now.Add(CancelNotice).UTC().Truncate(time.Millisecond).Add(time.Millisecond)
	switch {
	case c.EndsAt != nil && c.EndsAt.Before(soonest):
		return at, fault.New(fault.Conflict, "The contract is over, or ends within a minute.").WithCode("contract_over")
	case at.IsZero() && c.StartsAt.After(soonest):
		return c.StartsAt, nil
	case at.IsZero():
		return soonest, nil
	case at.Before(soonest) || !at.After(c.StartsAt):
		return at, fault.New(fault.Invalid, "A contract ends at least a minute from now, and after its start. Leave the end out for as soon as possible.").WithParam("ends_at")
	case at.After(clock.Latest):
		return at, fault.New(fault.Invalid, "A contract ends at most on %s.", clock.LatestText).WithParam("ends_at")
	}
	return at.UTC().Truncate(time.Millisecond), nil
}

// Contracts lists an organization's contracts, the latest start first. Operators only.
func (s *Service) Contracts(ctx context.Context, by tenants.Actor, org ids.ID) ([]Contract, error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	var rows []q.PriceContract
	err := s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		rows, err = q.New(tx).PriceContractsOfOrg(ctx, org)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("price: contracts: %w", err)
	}
	list := make([]Contract, len(rows))
	for i, r := range rows {
		list[i] = contract(r)
	}
	return list, nil
}

// BookOf is the book in effect for an organization at a moment: its contract's, else its own. By the database, for pages.
func BookOf(ctx context.Context, tx q.DBTX, org ids.ID, at time.Time) (string, error) {
	book, err := q.New(tx).PriceBookOfOrg(ctx, q.PriceBookOfOrgParams{Org: org, At: at})
	if err != nil {
		return "", tenants.Found(err, "organization")
	}
	return book, nil
}

// Contracts are those of some organizations.
type Contracts map[ids.ID][]Contract

// Book is the book of the contract in effect at a moment; ok=false: there is none.
func (c Contracts) Book(org ids.ID, at time.Time) (book string, ok bool) {
	list := c[org]
	for i := range list {
		if list[i].Holds(at) {
			return list[i].Book, true
		}
	}
	return "", false
}

// Names reports whether any contract of the organization, at any time, is about the book.
func (c Contracts) Names(org ids.ID, book string) bool {
	return slices.ContainsFunc(c[org], func(x Contract) bool { return x.Book == book })
}

// ContractsOf reads the contracts of organizations, those that were taken back left out: what the rater compares events
// with.
func ContractsOf(ctx context.Context, tx q.DBTX, orgs []ids.ID) (Contracts, error) {
	rows, err := q.New(tx).PriceContractsOfOrgs(ctx, orgs)
	if err != nil {
		return nil, fmt.Errorf("price: contracts of organizations: %w", err)
	}
	return contracts(rows), nil
}

func contracts(rows []q.PriceContract) Contracts {
	all := Contracts{}
	for _, r := range rows {
		all[r.OrgID] = append(all[r.OrgID], contract(r))
	}
	return all
}

func contract(r q.PriceContract) Contract {
	return Contract{ID: r.ID, Org: r.OrgID, Book: r.Book, StartsAt: r.StartsAt, EndsAt: r.EndsAt, Note: r.Note, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt}
}
