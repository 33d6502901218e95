package domain

import (
	"context"
	"fmt"
	"strconv"

	"millrace/billing/reconcile"
	"millrace/db/q"
	"millrace/internal/money"
	"millrace/web/admin"
)

// Reconcile is the last run.
func (b business) Reconcile(ctx context.Context) (admin.Reconciliation, error) {
	a, err := b.Report.Attention(ctx, operator(ctx), b.Clock.Now())
	if err != nil {
		return admin.Reconciliation{}, err
	}
	r, err := storedRun(a.Reconcile)
	if err != nil || r == nil {
		return admin.Reconciliation{}, err
	}
	out := admin.Reconciliation{Reconciled: outcome(r)}
	for _, l := range r.Lines {
		out.Lines = append(out.Lines, reconcileLine(l))
	}
	return out, nil
}

// storedRun reads a run's report; nil when there was none.
func storedRun(row q.ReconcileRun) (*reconcile.Report, error) {
	if row.At.IsZero() {
		return nil, nil
	}
	return reconcile.Parse(row.Report)
}

func outcome(r *reconcile.Report) admin.Reconciled {
	return admin.Reconciled{At: r.At, Watermark: r.Watermark, Difference: r.UnexplainedNano, Tokens: r.UnexplainedTokens, Unexplained: r.Unexplained}
}

// reconcileLine shows what is, and in the note what should be when the two part.
func reconcileLine(l reconcile.Line) admin.ReconcileLine {
	out := admin.ReconcileLine{Side: l.Side, Class: l.Name, Count: l.Count, Note: l.Note}
	if l.Class != "" {
		out.Class = l.Name + ": " + l.Class
	}
	show := func(n int64) string { return strconv.FormatInt(n, 10) + " " + l.Unit }
	switch l.Unit {
	case reconcile.Tokens:
		out.Tokens = l.Right
	case reconcile.Nano:
		out.Amount = money.Nano(l.Right)
		show = func(n int64) string { return money.Nano(n).String() + " USD" }
	default:
		out.Count = l.Right
	}
	if l.Difference != 0 {
		verdict := "explained"
		if !l.Explained {
			verdict = "UNEXPLAINED"
		}
		note := fmt.Sprintf("%s: should be %s, differs by %s", verdict, show(l.Left), show(l.Difference))
		if out.Note != "" {
			note += "; " + out.Note
		}
		out.Note = note
	}
	return out
}
