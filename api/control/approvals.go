package control

import (
	"time"

	"millrace/billing/credit"
	"millrace/internal/ids"
)

const requestPrefix = "creq"

// Approval is what an operator asked for, and what became of it: done at once, or waiting for a second operator.
type Approval struct {
	ID        string     `json:"id"`
	OrgID     string     `json:"org_id"`
	Kind      string     `json:"kind"`
	Amount    Amount     `json:"amount"`
	Reason    string     `json:"reason"`
	State     string     `json:"state"`
	TxnID     string     `json:"txn_id,omitempty"`         // of a reversal: what it reverses
	InvoiceID string     `json:"invoice_id,omitempty"`     // of a credit note, what is sent of it by hand, or a write-off
	NoteID    string     `json:"credit_note_id,omitempty"` // of what is sent by hand
	AskedBy   string     `json:"asked_by"`
	AskedAt   time.Time  `json:"asked_at"`
	DecidedBy string     `json:"decided_by,omitempty"`
	DecidedAt *time.Time `json:"decided_at,omitempty"`
	Note      string     `json:"note,omitempty"`
}

func approvalOf(r credit.Request) Approval {
	out := Approval{ID: ids.Format(requestPrefix, r.ID), OrgID: ids.Format(ids.Org, r.Org), Kind: string(r.Kind), Amount: amount(r.Amount), Reason: r.Reason, State: r.State,
		AskedBy: r.AskedBy, AskedAt: r.AskedAt, DecidedBy: r.DecidedBy, DecidedAt: r.DecidedAt, Note: r.Note}
	if r.Details.Txn != ids.Nil {
		out.TxnID = ids.Format(ids.Txn, r.Details.Txn)
	}
	if r.Details.Invoice != ids.Nil {
		out.InvoiceID = ids.Format(ids.Invoice, r.Details.Invoice)
	}
	if r.Details.Note != ids.Nil {
		out.NoteID = ids.Format(ids.Note, r.Details.Note)
	}
	return out
}

// NewAdjustment corrects what a customer has: a negative amount takes.
type NewAdjustment struct {
	AmountUSD string `json:"amount_usd"`
	Reason    string `json:"reason"`
}

func (a *api) createAdjustment(c *call, in NewAdjustment) (Approval, error) {
	org, err := c.org()
	if err != nil {
		return Approval{}, err
	}
	n, err := parseUSD("amount_usd", in.AmountUSD)
	if err != nil {
		return Approval{}, err
	}
	r, err := a.Credit.Ask(c, c.actor, credit.Ask{Org: org, Kind: credit.AdjustmentRequest, Amount: n, Reason: in.Reason, IdempotencyKey: c.idempotencyKey()})
	return approvalOf(r), err
}

// NewReversal undoes one transaction, once.
type NewReversal struct {
	TxnID  string `json:"txn_id"`
	Reason string `json:"reason"`
}

func (a *api) createReversal(c *call, in NewReversal) (Approval, error) {
	org, err := c.org()
	if err != nil {
		return Approval{}, err
	}
	txn, err := parseRef("txn_id", ids.Txn, in.TxnID)
	if err != nil {
		return Approval{}, err
	}
	r, err := a.Credit.Ask(c, c.actor, credit.Ask{Org: org, Kind: credit.ReversalRequest, Txn: txn, Reason: in.Reason, IdempotencyKey: c.idempotencyKey()})
	return approvalOf(r), err
}

func (a *api) listApprovals(c *call, _ none) (Page[Approval], error) {
	list, err := a.Credit.Requests(c, c.actor)
	return all(list, approvalOf), err
}

// Refusal ends what was asked for, with a word.
type Refusal struct {
	Note string `json:"note"`
}

func (a *api) refuse(c *call, in Refusal) (Approval, error) {
	id, err := c.id("approval", requestPrefix)
	if err != nil {
		return Approval{}, err
	}
	r, err := a.Credit.Refuse(c, c.actor, id, in.Note)
	return approvalOf(r), err
}
