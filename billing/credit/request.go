package credit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// StandardApproval is the sum above which what an operator gives or takes, of one customer within 24 hours, waits for a second one.
const StandardApproval = 1000 * money.NanoPerUSD

// RequestKind says what an operator asks for.
type RequestKind string

// The kinds.
const (
	GrantRequest      RequestKind = "grant"       // credit, paid or promotional
	AdjustmentRequest RequestKind = "adjustment"  // a correction of what a customer owes or has
	ReversalRequest   RequestKind = "reversal"    // of one transaction
	NoteRequest       RequestKind = "credit_note" // for an invoice
	SendNoteRequest   RequestKind = "send_note"   // by hand, of what a credit note gives back
	WriteOffRequest   RequestKind = "write_off"   // of what an invoice leaves unpaid
	LimitRequest      RequestKind = "credit_limit"
)

// Deed is what another room does on behalf of the desk: billing/invoice.
type Deed interface {
	// Check refuses what cannot be done now. It runs before anything is kept.
	Check(ctx context.Context, tx pgx.Tx, r Request) error
	// Do books it, once per request: its id is part of every key.
	Do(ctx context.Context, tx pgx.Tx, by tenants.Actor, r Request) error
}

// Entrust says who does what is asked for of a kind. Call it before the desk is used.
func (d *Desk) Entrust(kind RequestKind, to Deed) {
	if d.deeds == nil {
		d.deeds = map[RequestKind]Deed{}
	}
	d.deeds[kind] = to
}

// Ask is what an operator wants done to a customer's credit. A sum above the limit waits for a second operator.
type Ask struct {
	Org            ids.ID
	Kind           RequestKind
	Amount         money.Nano // positive gives, negative takes (adjustments only); of a reversal: ignored, the transaction says it
	Reason         string     // shown to the customer
	IdempotencyKey string     // the caller's; unique per organization

	Grant     GrantKind  // of a grant
	ExpiresAt time.Time  // of a grant; zero = never
	Priority  int16      // of a grant; 0 = its kind's
	Txn       ids.ID     // of a reversal
	Invoice   ids.ID     // of a credit note, what is sent of it by hand, or a write-off
	Note      ids.ID     // of what is sent by hand: the credit note
	Back      string     // of a credit note: where what had been paid goes
	Limit     money.Nano // of a credit limit: the new one. Its Amount is what it moves by, and is ignored
}

// Request is what was asked for, and what became of it.
type Request struct {
	ID        ids.ID
	Org       ids.ID
	OrgName   string // only where Requests lists it
	Kind      RequestKind
	Amount    money.Nano // positive gives the customer credit
	Reason    string
	Details   Details
	State     string // waiting, done, refused
	AskedBy   string
	AskedAt   time.Time
	DecidedBy string
	DecidedAt *time.Time
	Note      string
	Own       bool // only where Requests lists it: who reads it asked, in person or by a control token that he made
	Repeated  bool // of Ask: the key was used before, and this is what became of the first
}

// Details is what else is done when a request is approved.
type Details struct {
	Grant     GrantKind  `json:"grant,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Priority  int16      `json:"priority,omitempty"`
	Txn       ids.ID     `json:"txn"`
	Invoice   ids.ID     `json:"invoice"`
	Note      ids.ID     `json:"note"`
	Back      string     `json:"back,omitempty"`
	Limit     money.Nano `json:"limit,omitempty"`
}

func (d Details) equal(o Details) bool {
	sameEnd := d.ExpiresAt == nil && o.ExpiresAt == nil || d.ExpiresAt != nil && o.ExpiresAt != nil && d.ExpiresAt.Equal(*o.ExpiresAt)
	d.ExpiresAt, o.ExpiresAt = nil, nil
	return sameEnd && d == o
}

// The states of a request.
const (
	Waiting = "waiting"
	Done    = "done"
	Refused = "refused"
)

const (
	requestPrefix = "creq"
	maxRequests   = 200 // listed
)

// ApproveAbove sets the sum above which a second operator must approve; 0 keeps StandardApproval. Call it before the desk
// is used.
func (d *Desk) ApproveAbove(limit money.Nano) {
	if limit > 0 {
		d.approveAbove = limit
	}
}

// ApprovalLimit is the sum above which a second operator must approve.
func (d *Desk) ApprovalLimit() money.Nano { return d.approveAbove }

// Ask does what an operator asks for, or keeps it for a second one (State tells): what would come, with what he did to the
// customer alone within 24 hours, above the limit. Operators only. A repeated request gives
// what became of the first; for something else its key is a Conflict.
func (d *Desk) Ask(ctx context.Context, by tenants.Actor, a Ask) (Request, error) {
	return d.ask(ctx, by, a, true)
}

// ask refuses, unless it may wait, what needs a second operator.
func (d *Desk) ask(ctx context.Context, by tenants.Actor, a Ask, mayWait bool) (Request, error) {
	if err := by.RequireOperator(); err != nil {
		return Request{}, err
	}
	a.Reason = strings.TrimSpace(a.Reason)
	if err := checkWritten(a.Reason, a.IdempotencyKey); err != nil {
		return Request{}, err
	}
	var out Request
	err := d.change(ctx, a.Org, func(tx pgx.Tx) (err error) {
		// Before any row, as everyone: what one operator does to a customer is added up.
		if err := q.New(tx).LockApprovals(ctx, a.Org); err != nil {
			return fmt.Errorf("credit: approvals: %w", err)
		}
		// First what was asked for: what was right then may not be asked for any more.
		if out, err = asked(ctx, q.New(tx), a); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if err := a.check(d.now(), d.deeds); err != nil {
			return err
		}
		if found, err := q.New(tx).ScopeExists(ctx, q.ScopeExistsParams{Scope: string(OrgScope), OrgID: a.Org, ScopeID: a.Org}); err != nil {
			return fmt.Errorf("credit: find the organization: %w", err)
		} else if !found {
			return fault.New(fault.NotFound, "There is no such organization.").WithCode("not_found")
		}
		if a.Kind == ReversalRequest {
			t, err := d.reversible(ctx, tx, a.Org, a.Txn)
			if err != nil {
				return err
			}
			a.Amount = t.gives()
		}
		if a.Kind == LimitRequest {
			was, err := q.New(tx).LockCreditLimit(ctx, a.Org)
			if err != nil {
				return fmt.Errorf("credit: read the credit limit: %w", err)
			}
			a.Amount = a.Limit - money.Nano(was)
		}
		if deed := d.deeds[a.Kind]; deed != nil {
			if err := deed.Check(ctx, tx, Request{Org: a.Org, Kind: a.Kind, Amount: a.Amount, Reason: a.Reason, Details: a.details()}); err != nil {
				return err
			}
		}
		row, err := d.insertRequest(ctx, q.New(tx), by, a)
		if errors.Is(err, pgx.ErrNoRows) {
			out, err = asked(ctx, q.New(tx), a)
			return err
		}
		if err != nil {
			return fmt.Errorf("credit: insert a request: %w", err)
		}
		if out, err = requestOf(row); err != nil {
			return err
		}
		alone, err := d.mayAlone(ctx, q.New(tx), by, a.Org, a.weight())
		if err != nil {
			return err
		}
		switch {
		case !alone && !mayWait:
			return d.needsTwo()
		case !alone:
			return d.audit(ctx, tx, by, a.Org, "credit.ask", ids.Format(requestPrefix, out.ID), nil, out)
		}
		if err := d.do(ctx, tx, by, out); err != nil {
			return err
		}
		out, err = d.decide(ctx, tx, out, Done, nil, "")
		return err
	})
	return out, err
}

// aloneSpan is how long what an operator does to one customer is added up for the limit: many small sums are a large one.
const aloneSpan = 24 * time.Hour

// mayAlone reports whether an operator may give or take so much without a second one, with what he gave and took before, in
// person and by the tokens that he made. All tokens together are one operator, too: who is behind one may not be known. The
// caller has called LockApprovals.
func (d *Desk) mayAlone(ctx context.Context, queries *q.Queries, by tenants.Actor, org ids.ID, amount money.Nano) (bool, error) {
	if by.Name() == tenants.System().Name() { // the program itself: a new installation's demo credit
		return true, nil
	}
	before, err := queries.DoneAlone(ctx, q.DoneAloneParams{OrgID: org, Who: by.Name(), AnyToken: by.Token != "", Since: d.now().Add(-aloneSpan)})
	if err != nil {
		return false, fmt.Errorf("credit: what was done alone: %w", err)
	}
	return amount <= d.approveAbove-money.Nano(before), nil
}

func (d *Desk) needsTwo() error {
	return fault.New(fault.Forbidden, "More than %s USD for one customer within 24 hours need a second operator.", d.approveAbove).
		WithCode("second_operator_needed")
}

// weight is what counts for the limit of what one operator does alone. Lowering a credit limit is no gift.
func (a *Ask) weight() money.Nano {
	if a.Kind == LimitRequest {
		return max(a.Amount, 0)
	}
	return max(a.Amount, -a.Amount)
}

func (a *Ask) check(now time.Time, deeds map[RequestKind]Deed) error {
	invalid := func(param, message string) error { return fault.New(fault.Invalid, "%s", message).WithParam(param) }
	switch {
	case a.Kind != GrantRequest && a.Kind != AdjustmentRequest && a.Kind != ReversalRequest && a.Kind != LimitRequest && deeds[a.Kind] == nil:
		return invalid("kind", "Ask for a grant, an adjustment, a reversal or a credit limit.")
	case a.Kind == LimitRequest && (a.Limit < 0 || a.Limit > MaxCap):
		return invalid("credit_limit", fmt.Sprintf("A credit limit lies between 0 and %s USD.", MaxCap))
	case a.Reason == "" || len(a.Reason) > maxReason:
		return invalid("reason", "Give a reason of at most 500 bytes: the customer sees it.")
	case a.IdempotencyKey == "" || len(a.IdempotencyKey) > maxKey:
		return invalid("idempotency_key", "Give an idempotency key of at most 200 bytes.")
	case a.Kind == GrantRequest:
		in := a.grant()
		return in.check(now)
	case a.Kind == AdjustmentRequest && (a.Amount == 0 || a.Amount > MaxGrant || a.Amount < -MaxGrant):
		return invalid("amount", fmt.Sprintf("Give or take more than 0 and at most %s USD.", MaxGrant))
	}
	return nil
}

func (a *Ask) grant() GrantInput {
	return GrantInput{Org: a.Org, Kind: a.Grant, Amount: a.Amount, Reason: a.Reason, IdempotencyKey: a.IdempotencyKey, ExpiresAt: a.ExpiresAt, Priority: a.Priority}
}

func (a *Ask) details() Details {
	out := Details{Grant: a.Grant, Priority: a.Priority, Txn: a.Txn, Invoice: a.Invoice, Note: a.Note, Back: a.Back, Limit: a.Limit}
	if !a.ExpiresAt.IsZero() {
		at := a.ExpiresAt.UTC().Truncate(time.Microsecond)
		out.ExpiresAt = &at
	}
	return out
}

func (d *Desk) insertRequest(ctx context.Context, queries *q.Queries, by tenants.Actor, a Ask) (q.CreditRequest, error) {
	details, err := json.Marshal(a.details())
	if err != nil {
		return q.CreditRequest{}, err
	}
	return queries.InsertCreditRequest(ctx, q.InsertCreditRequestParams{OrgID: a.Org, ID: ids.New(), Kind: string(a.Kind), AmountNano: int64(a.Amount),
		Reason: a.Reason, Details: details, IdempotencyKey: a.IdempotencyKey, AskedBy: by.Name(), AskedAt: d.now()})
}

// asked is the request that a key stands for; pgx.ErrNoRows: there is none.
func asked(ctx context.Context, queries *q.Queries, a Ask) (Request, error) {
	row, err := queries.CreditRequestByKey(ctx, q.CreditRequestByKeyParams{OrgID: a.Org, IdempotencyKey: a.IdempotencyKey})
	if err != nil {
		return Request{}, fmt.Errorf("credit: read a request: %w", err)
	}
	out, err := requestOf(row)
	if err != nil {
		return Request{}, err
	}
	sameAmount := out.Amount == a.Amount || a.Kind == ReversalRequest || a.Kind == WriteOffRequest || a.Kind == LimitRequest // something else says it
	if out.Kind != a.Kind || !sameAmount || out.Reason != a.Reason || !out.Details.equal(a.details()) {
		return Request{}, fault.New(fault.Conflict, "The idempotency key was used for something else.").WithCode("idempotency_key_reused").WithParam("idempotency_key")
	}
	out.Repeated = true
	return out, nil
}

func requestOf(r q.CreditRequest) (Request, error) {
	out := Request{ID: r.ID, Org: r.OrgID, Kind: RequestKind(r.Kind), Amount: money.Nano(r.AmountNano), Reason: r.Reason, State: r.State,
		AskedBy: r.AskedBy, AskedAt: r.AskedAt, DecidedAt: r.DecidedAt, Note: r.Note}
	if r.DecidedBy != nil {
		out.DecidedBy = *r.DecidedBy
	}
	if err := json.Unmarshal(r.Details, &out.Details); err != nil {
		return Request{}, fmt.Errorf("credit: details of request %s: %w", r.ID, err)
	}
	return out, nil
}

// Approve does what another operator asked for. What a control token asked for, the person who made the token did.
func (d *Desk) Approve(ctx context.Context, by tenants.Actor, id ids.ID) (Request, error) {
	return d.judge(ctx, by, id, func(tx pgx.Tx, r Request) (Request, error) {
		if by.User == ids.Nil { // one person may hold any number of tokens
			return Request{}, fault.New(fault.Forbidden, "Only a person approves, on the console's page Approvals.").WithCode("person_needed")
		}
		if r.AskedBy == by.Name() {
			return Request{}, fault.New(fault.Forbidden, "You asked for this. A second operator must approve it.").WithCode("second_operator_needed")
		}
		switch own, err := q.New(tx).IsBehind(ctx, q.IsBehindParams{Token: r.AskedBy, Person: by.Name()}); {
		case err != nil:
			return Request{}, fmt.Errorf("credit: who is behind a token: %w", err)
		case own:
			return Request{}, fault.New(fault.Forbidden, "A control token that you made asked for this (%s). A second operator must approve it.", r.AskedBy).
				WithCode("second_operator_needed")
		}
		if err := d.do(ctx, tx, by, r); err != nil {
			return Request{}, err
		}
		who := by.Name()
		return d.decide(ctx, tx, r, Done, &who, "")
	})
}

// Refuse ends a request. Whoever asked may take it back by it.
func (d *Desk) Refuse(ctx context.Context, by tenants.Actor, id ids.ID, note string) (Request, error) {
	if note = strings.TrimSpace(note); note == "" || len(note) > maxReason {
		return Request{}, fault.New(fault.Invalid, "Say why, in at most 500 bytes.").WithParam("note")
	}
	if err := CheckWords("note", note); err != nil {
		return Request{}, err
	}
	return d.judge(ctx, by, id, func(tx pgx.Tx, r Request) (Request, error) {
		who := by.Name()
		out, err := d.decide(ctx, tx, r, Refused, &who, note)
		if err != nil {
			return Request{}, err
		}
		return out, d.audit(ctx, tx, by, r.Org, "credit.refuse", ids.Format(requestPrefix, r.ID), r, out)
	})
}

// judge runs fn on a request that waits, under its lock. It locks in the order of ask: the organization's approvals before any row.
func (d *Desk) judge(ctx context.Context, by tenants.Actor, id ids.ID, fn func(tx pgx.Tx, r Request) (Request, error)) (out Request, err error) {
	if err := by.RequireOperator(); err != nil {
		return Request{}, err
	}
	err = d.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		queries := q.New(tx)
		org, err := queries.CreditRequestOrg(ctx, id)
		if err != nil {
			return tenants.Found(err, "request")
		}
		if err := queries.LockApprovals(ctx, org); err != nil {
			return fmt.Errorf("credit: approvals: %w", err)
		}
		row, err := queries.LockCreditRequest(ctx, id)
		if err != nil {
			return tenants.Found(err, "request")
		}
		r, err := requestOf(row)
		if err != nil {
			return err
		}
		if r.State != Waiting {
			return fault.New(fault.Conflict, "This was decided already.").WithCode("already_decided")
		}
		out, err = fn(tx, r)
		return err
	})
	if err == nil {
		Tell(ctx, d.notify, out.Org)
	}
	return out, err
}

func (d *Desk) decide(ctx context.Context, tx pgx.Tx, r Request, state string, by *string, note string) (Request, error) {
	now := d.now()
	row, err := q.New(tx).DecideCreditRequest(ctx, q.DecideCreditRequestParams{OrgID: r.Org, ID: r.ID, State: state, DecidedBy: by, DecidedAt: &now, Note: note})
	if err != nil {
		return Request{}, fmt.Errorf("credit: decide a request: %w", err)
	}
	return requestOf(row)
}

// do books a request, once: its id is part of every key.
func (d *Desk) do(ctx context.Context, tx pgx.Tx, by tenants.Actor, r Request) error {
	switch r.Kind {
	case GrantRequest:
		in := GrantInput{Org: r.Org, Kind: r.Details.Grant, Amount: r.Amount, Reason: r.Reason, Priority: r.Details.Priority, Actor: r.AskedBy,
			IdempotencyKey: ids.Format(requestPrefix, r.ID)}
		if at := r.Details.ExpiresAt; at != nil {
			in.ExpiresAt = *at
		}
		g, fresh, err := GiveCredit(ctx, tx, in, d.now())
		if err == nil && !fresh {
			err = fmt.Errorf("credit: request %s was given before", r.ID)
		}
		if err != nil {
			return err
		}
		return d.audit(ctx, tx, by, r.Org, "credit.grant", ids.Format(ids.Grant, g.ID), nil, g)
	case AdjustmentRequest:
		return d.adjust(ctx, tx, by, r)
	case LimitRequest:
		if was, err := q.New(tx).LockCreditLimit(ctx, r.Org); err != nil {
			return fmt.Errorf("credit: read the credit limit: %w", err)
		} else if r.Details.Limit-money.Nano(was) != r.Amount {
			return fault.New(fault.Conflict, "The credit limit was changed meanwhile: it is %s USD. Ask again.", money.Nano(was)).WithCode("limit_changed")
		}
		return d.setLimit(ctx, tx, by, r.Org, r.Details.Limit)
	}
	if deed := d.deeds[r.Kind]; deed != nil {
		return deed.Do(ctx, tx, by, r)
	}
	return d.reverse(ctx, tx, by, r)
}

// adjust moves paid credit against the account of corrections.
func (d *Desk) adjust(ctx context.Context, tx pgx.Tx, by tenants.Actor, r Request) error {
	id, _, err := ledger.Post(ctx, tx, ledger.Txn{Org: r.Org, Kind: ledger.Adjustment, Memo: r.Reason, Key: ids.Format(requestPrefix, r.ID),
		Entries: []ledger.Entry{{Account: ledger.Adjustments, Amount: r.Amount}, {Account: ledger.PrepaidPaid, Amount: -r.Amount}}})
	if err != nil {
		return err
	}
	if err := RaiseBalance(ctx, q.New(tx), r.Org, r.Amount); err != nil {
		return err
	}
	return d.audit(ctx, tx, by, r.Org, "credit.adjust", ids.Format(ids.Txn, id), nil, r)
}

// Requests lists what waits first, then the newest. Operators only.
func (d *Desk) Requests(ctx context.Context, by tenants.Actor) (list []Request, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = d.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).CreditRequests(ctx, q.CreditRequestsParams{Person: by.Name(), MaxRows: maxRequests})
		list = nil
		for _, r := range rows {
			one, err := requestOf(q.CreditRequest{OrgID: r.OrgID, ID: r.ID, Kind: r.Kind, AmountNano: r.AmountNano, Reason: r.Reason, Details: r.Details,
				IdempotencyKey: r.IdempotencyKey, State: r.State, AskedBy: r.AskedBy, AskedAt: r.AskedAt, DecidedBy: r.DecidedBy, DecidedAt: r.DecidedAt, Note: r.Note})
			if err != nil {
				return err
			}
			one.OrgName, one.Own = r.OrgName, r.AskedBy == by.Name() || r.ByToken
			list = append(list, one)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("credit: requests: %w", err)
	}
	return list, nil
}
