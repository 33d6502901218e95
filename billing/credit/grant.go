package credit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// GrantKind says where credit came from.
type GrantKind string

// The kinds.
const (
	Paid        GrantKind = "paid"        // the customer paid for it
	Promotional GrantKind = "promotional" // given away; used before paid credit
)

// Limits of a grant.
const (
	MaxGrant     money.Nano = 100_000_000 * money.NanoPerUSD
	maxReason               = 500 // bytes
	maxKey                  = 200 // bytes
	maxGrantPage            = 200
	minLife                 = time.Hour // of credit that ends
	maxPriority             = 1000
)

// reservedKeys are how the keys of grants begin that are not an operator's: of requests and of top-ups.
var reservedKeys = []string{requestPrefix + "_", "topup:"}

// GrantInput asks for credit.
type GrantInput struct {
	Org            ids.ID
	Kind           GrantKind
	Amount         money.Nano
	Reason         string         // shown to the customer
	IdempotencyKey string         // the caller's; unique per organization
	ExpiresAt      time.Time      // zero = never
	Priority       int16          // which credit is used first, the lowest; 0 = the kind's own (promotional before paid)
	Actor          string         // who gives it; Desk.Grant fills it in
	From           ledger.Account // what paid credit is debited to; "" = ledger.Cash. A top-up names StripeClearing
}

// Grant is credit that was given.
type Grant struct {
	ID        ids.ID
	Org       ids.ID
	Kind      GrantKind
	Amount    money.Nano
	Reason    string
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt *time.Time // nil = never
	Left      money.Nano // not used yet; only where Grants lists it
}

func grantOf(r q.CreditGrant) Grant {
	return Grant{ID: r.ID, Org: r.OrgID, Kind: GrantKind(r.Kind), Amount: money.Nano(r.AmountNano), Reason: r.Reason,
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt}
}

func (in *GrantInput) check(now time.Time) error {
	in.Reason = strings.TrimSpace(in.Reason)
	invalid := func(param, message string) error { return fault.New(fault.Invalid, "%s", message).WithParam(param) }
	switch {
	case in.Kind != Paid && in.Kind != Promotional:
		return invalid("kind", "Credit is paid or promotional.")
	case in.Amount <= 0 || in.Amount > MaxGrant:
		return invalid("amount", fmt.Sprintf("Give more than 0 and at most %s USD.", MaxGrant))
	case in.Reason == "" || len(in.Reason) > maxReason:
		return invalid("reason", "Give a reason of at most 500 bytes: the customer sees it.")
	case in.IdempotencyKey == "" || len(in.IdempotencyKey) > maxKey:
		return invalid("idempotency_key", "Give an idempotency key of at most 200 bytes.")
	case !in.ExpiresAt.IsZero() && in.ExpiresAt.Before(now.Add(minLife)):
		return invalid("expires_at", "Credit ends in the future: an hour from now at the earliest.")
	case in.ExpiresAt.After(clock.Latest):
		return invalid("expires_at", "Credit ends at most on "+clock.LatestText+". Leave the end out for credit that does not end.")
	case in.Priority < 0 || in.Priority > maxPriority:
		return invalid("priority", "A priority is 1 to 1,000; the lowest is used first.")
	}
	in.ExpiresAt = in.ExpiresAt.UTC().Truncate(time.Microsecond)
	return checkWritten(in.Reason, in.IdempotencyKey)
}

// GiveCredit gives credit in tx, a transaction of the system: the grant, its ledger transaction and the raised balance, all
// or nothing. fresh=false says that the key was used before for the same credit, which is what it gives then; for other
// credit the key is a Conflict. The caller checks who asks, and calls Tell after the commit.
func GiveCredit(ctx context.Context, tx q.DBTX, in GrantInput, now time.Time) (g Grant, fresh bool, err error) {
	if err := in.check(now); err != nil {
		return Grant{}, false, err
	}
	queries := q.New(tx)
	p := q.InsertGrantParams{OrgID: in.Org, ID: ids.New(), Kind: string(in.Kind), AmountNano: int64(in.Amount), Reason: in.Reason,
		IdempotencyKey: in.IdempotencyKey, CreatedBy: in.Actor, CreatedAt: now}
	if !in.ExpiresAt.IsZero() {
		p.ExpiresAt = &in.ExpiresAt
	}
	if in.Priority != 0 {
		p.Priority = &in.Priority
	}
	if found, err := queries.ScopeExists(ctx, q.ScopeExistsParams{Scope: string(OrgScope), OrgID: in.Org, ScopeID: in.Org}); err != nil {
		return Grant{}, false, fmt.Errorf("credit: find the organization: %w", err)
	} else if !found {
		return Grant{}, false, fault.New(fault.NotFound, "There is no such organization.").WithCode("not_found")
	}
	row, err := queries.InsertGrant(ctx, p)
	if errors.Is(err, pgx.ErrNoRows) {
		g, err = granted(ctx, queries, in)
		return g, false, err
	}
	if err != nil {
		return Grant{}, false, fmt.Errorf("credit: insert a grant: %w", err)
	}
	if _, _, err := ledger.Post(ctx, tx, in.txn(row.ID)); err != nil {
		return Grant{}, false, err
	}
	return grantOf(row), true, RaiseBalance(ctx, queries, in.Org, in.Amount)
}

// granted is the grant that an idempotency key stands for.
func granted(ctx context.Context, queries *q.Queries, in GrantInput) (Grant, error) {
	row, err := queries.GrantByKey(ctx, q.GrantByKeyParams{OrgID: in.Org, IdempotencyKey: in.IdempotencyKey})
	if err != nil {
		return Grant{}, fmt.Errorf("credit: read a grant: %w", err)
	}
	g := grantOf(row)
	sameEnd := g.ExpiresAt == nil && in.ExpiresAt.IsZero() || g.ExpiresAt != nil && g.ExpiresAt.Equal(in.ExpiresAt)
	if g.Kind == in.Kind && g.Amount == in.Amount && sameEnd {
		return g, nil
	}
	return Grant{}, fault.New(fault.Conflict, "The idempotency key was used for other credit.").WithCode("idempotency_key_reused").WithParam("idempotency_key")
}

// txn books the grant. Its lot has the grant's id.
func (in *GrantInput) txn(id ids.ID) ledger.Txn {
	t := ledger.Txn{Org: in.Org, Kind: ledger.Grant, Memo: in.Reason, Lot: ledger.Lot{ID: id, Priority: in.Priority, ExpiresAt: in.ExpiresAt}}
	switch {
	case in.Kind == Promotional:
		t.Entries = []ledger.Entry{ledger.Debit(ledger.PromoCost, in.Amount), ledger.Credit(ledger.PrepaidPromo, in.Amount)}
	case in.From == "" || in.From == ledger.Cash:
		t.Entries = []ledger.Entry{ledger.Debit(ledger.Cash, in.Amount), ledger.Credit(ledger.PrepaidPaid, in.Amount)}
	default:
		t.Kind = ledger.Topup
		t.Entries = []ledger.Entry{ledger.Debit(in.From, in.Amount), ledger.Credit(ledger.PrepaidPaid, in.Amount)}
	}
	return t
}

// Grant gives credit at once. Operators only, and at most ApprovalLimit for one customer within 24 hours: more is what Ask is for. fresh=false: a repeated
// request; nothing was given again.
func (d *Desk) Grant(ctx context.Context, by tenants.Actor, in GrantInput) (g Grant, fresh bool, err error) {
	if err := by.RequireOperator(); err != nil {
		return Grant{}, false, err
	}
	for _, prefix := range reservedKeys {
		if strings.HasPrefix(in.IdempotencyKey, prefix) {
			return Grant{}, false, fault.New(fault.Invalid, "Idempotency keys do not begin with %s.", prefix).WithParam("idempotency_key")
		}
	}
	in.Actor = by.Name()
	err = d.change(ctx, in.Org, func(tx pgx.Tx) (err error) {
		if err := q.New(tx).LockApprovals(ctx, in.Org); err != nil {
			return fmt.Errorf("credit: approvals: %w", err)
		}
		alone, err := d.mayAlone(ctx, q.New(tx), by, in.Org, in.Amount)
		if err != nil {
			return err
		}
		if g, fresh, err = GiveCredit(ctx, tx, in, d.now()); err != nil || !fresh {
			return err
		}
		if !alone {
			return d.needsTwo()
		}
		return d.audit(ctx, tx, by, in.Org, "credit.grant", ids.Format(ids.Grant, g.ID), nil, g)
	})
	return g, fresh, err
}

// Grants lists the newest credit given to an organization, at most limit.
func (d *Desk) Grants(ctx context.Context, by tenants.Actor, org ids.ID, limit int) ([]Grant, error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return nil, err
	}
	if limit <= 0 || limit > maxGrantPage {
		limit = maxGrantPage
	}
	var list []Grant
	err := d.db.InTx(ctx, db.Org(org).Snapshot().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).Grants(ctx, q.GrantsParams{OrgID: org, MaxRows: int32(limit)})
		list = make([]Grant, len(rows))
		if err != nil {
			return err
		}
		lots, err := ledger.Lots(ctx, tx, org)
		left := make(map[ids.ID]money.Nano, len(lots))
		for _, l := range lots {
			left[l.ID] = l.Remaining
		}
		for i, r := range rows {
			list[i] = grantOf(r)
			list[i].Left = left[r.ID]
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("credit: grants: %w", err)
	}
	return list, nil
}
