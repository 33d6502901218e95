package topup

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/ids"
)

// mail writes to everyone who looks after an organization's money, in the caller's transaction.
func (s *Service) mail(ctx context.Context, tx pgx.Tx, org ids.ID, subject, body string) error {
	to, err := q.New(tx).BillingPeople(ctx, org)
	if err != nil {
		return fmt.Errorf("topup: who to write to: %w", err)
	}
	return s.post(ctx, tx, to, subject, body+"\n\n"+s.c.PublicURL+"/billing/credits\n")
}

// alarm writes to the operators.
func (s *Service) alarm(ctx context.Context, tx pgx.Tx, subject, body string) error {
	slog.WarnContext(ctx, "topup: "+subject, "detail", body)
	to, err := q.New(tx).OperatorPeople(ctx)
	if err != nil {
		return fmt.Errorf("topup: who to write to: %w", err)
	}
	return s.post(ctx, tx, to, subject, body+"\n\n"+s.c.PublicURL+"/admin/payments\n")
}

func (s *Service) post(ctx context.Context, tx pgx.Tx, to []string, subject, body string) error {
	if s.Test() {
		body = "This is about a test payment: no money moves.\n\n" + body
	}
	for _, address := range to {
		if err := q.New(tx).InsertOutbox(ctx, q.InsertOutboxParams{ID: ids.New(), Recipient: address, Subject: subject, Body: body, CreatedAt: s.now()}); err != nil {
			return fmt.Errorf("topup: mail: %w", err)
		}
	}
	return nil
}

func (s *Service) mailReceipt(ctx context.Context, tx pgx.Tx, t q.Topup) error {
	how := "Your payment has arrived"
	if Kind(t.Kind) == Auto {
		how = "Your card was charged, as you set up with auto-recharge"
	}
	return s.mail(ctx, tx, t.OrgID, "Credit added: "+dollars(t.Cents), fmt.Sprintf("%s: %s is in your balance.", how, dollars(t.Cents)))
}

func dollars(cents int64) string { return fmt.Sprintf("$%d.%02d", cents/100, cents%100) }
