package domain

import (
	"context"
	"encoding/json"
	"fmt"

	"millrace/db/q"
	"millrace/internal/money"
	"millrace/web/admin"
)

// Reconcile is the last run.
func (b business) Reconcile(ctx context.Context) (admin.Reconciliation, error) {
	a, err := b.Report.Attention(ctx, operator(ctx), b.Clock.Now())
	if err != nil || a.Reconcile.At.IsZero() {
		return admin.Reconciliation{}, err
	}
	stored, err := readStored(a.Reconcile)
	out := admin.Reconciliation{Reconciled: reconciledOf(a.Reconcile)}
	for _, l := range stored.Lines {
		out.Lines = append(out.Lines, admin.ReconcileLine{Side: l.Side, Class: l.Class, Count: l.Count, Tokens: l.Tokens, Amount: l.Amount, Note: l.Note})
	}
	return out, err
}
