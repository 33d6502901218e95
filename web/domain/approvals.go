package domain

import (
	"context"

	"millrace/billing/credit"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/admin"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/statement"
	"millrace/web/ui"
)

// Approvals are what operators asked for, with their names.
func (b business) Approvals(ctx context.Context) ([]admin.Approval, error) {
	by := operator(ctx)
	list, err := b.Credit.Requests(ctx, by)
	if err != nil {
		return nil, err
	}
	who := make([]string, 0, 2*len(list))
	for _, r := range list {
		who = append(who, r.AskedBy, r.DecidedBy)
	}
	names, err := b.names(ctx, who)
	out := make([]admin.Approval, len(list))
	for i, r := range list {
		out[i] = admin.Approval{ID: r.ID, Org: r.Org, OrgName: r.OrgName, What: requestText(r), Amount: r.Amount, Reason: r.Reason, By: names.of(r.AskedBy),
			Mine: r.Own, At: r.AskedAt, State: r.State, Note: r.Note}
		if r.DecidedBy != "" {
			out[i].Decided = names.of(r.DecidedBy)
		}
	}
	return out, err
}

// requestText says in words what was asked for.
func requestText(r credit.Request) string {
	switch r.Kind {
	case credit.GrantRequest:
		text := "Grant, " + string(r.Details.Grant)
		if at := r.Details.ExpiresAt; at != nil {
			text += ", ends " + at.UTC().Format("2 Jan 2006 15:04 UTC")
		}
		return text
	case credit.ReversalRequest:
		return "Reversal of " + ids.Format(ids.Txn, r.Details.Txn)
	case credit.LimitRequest:
		return "Credit limit of " + ui.FormatMoney(r.Details.Limit)
	case credit.NoteRequest:
		return "Credit note for " + ids.Format(ids.Invoice, r.Details.Invoice)
	case credit.SendNoteRequest:
		return "Sending by hand of " + ids.Format(ids.Note, r.Details.Note)
	case credit.WriteOffRequest:
		return "Giving up of " + ids.Format(ids.Invoice, r.Details.Invoice)
	}
	return "Adjustment"
}

// ask does what a form asks for, once.
func (b business) ask(ctx context.Context, who session.Viewer, form ids.ID, a credit.Ask) (waits bool, err error) {
	a.IdempotencyKey = "form " + ids.Format(ids.Grant, form)
	r, err := b.Credit.Ask(ctx, staff(who), a)
	if err != nil {
		return false, err
	}
	if r.Repeated {
		return false, fault.New(fault.Conflict, "This form was sent already: it was done once. Look at the customer's page.").WithCode("form_sent")
	}
	return r.State == credit.Waiting, nil
}

// GrantCredit gives credit, once per form, or asks a second operator.
func (b business) GrantCredit(ctx context.Context, who session.Viewer, g admin.Grant) (waits bool, err error) {
	kind := credit.Paid
	if g.Promo {
		kind = credit.Promotional
	}
	waits, err = b.ask(ctx, who, g.ID, credit.Ask{Org: g.Org, Kind: credit.GrantRequest, Grant: kind, Amount: g.Amount, Reason: g.Reason, ExpiresAt: g.Ends})
	return waits, rename(err, map[string]string{"expires_at": "ends"})
}

// Adjust corrects a customer's credit, once per form.
func (b business) Adjust(ctx context.Context, who session.Viewer, a admin.Adjustment) (waits bool, err error) {
	return b.ask(ctx, who, a.ID, credit.Ask{Org: a.Org, Kind: credit.AdjustmentRequest, Amount: a.Amount, Reason: a.Reason})
}

// SetCreditLimit moves a customer's credit limit, once per form.
func (b business) SetCreditLimit(ctx context.Context, who session.Viewer, l admin.CreditLimit) (waits bool, err error) {
	return b.ask(ctx, who, l.ID, credit.Ask{Org: l.Org, Kind: credit.LimitRequest, Limit: l.Limit, Reason: l.Reason})
}

// Reverse undoes a transaction, once.
func (b business) Reverse(ctx context.Context, who session.Viewer, r admin.Reversal) (waits bool, err error) {
	return b.ask(ctx, who, r.ID, credit.Ask{Org: r.Org, Kind: credit.ReversalRequest, Txn: r.Txn, Reason: r.Reason})
}

// Approve does what another operator asked for.
func (b business) Approve(ctx context.Context, who session.Viewer, id ids.ID) error {
	_, err := b.Credit.Approve(ctx, staff(who), id)
	return err
}

// Refuse ends what was asked for.
func (b business) Refuse(ctx context.Context, who session.Viewer, id ids.ID, note string) error {
	_, err := b.Credit.Refuse(ctx, staff(who), id, note)
	return err
}

// Statement is a customer's month.
func (b business) Statement(ctx context.Context, org ids.ID, month report.Span) (statement.Statement, error) {
	s, err := b.Report.Statement(ctx, operator(ctx), org, month.From, month.To)
	if err != nil {
		return statement.Statement{}, err
	}
	return statement.Of(s)
}
