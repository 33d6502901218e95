package invoice

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/ids"
)

// mail writes to the organization's billing people and to where its invoices go, in the caller's transaction.
func (s *Service) mail(ctx context.Context, tx pgx.Tx, inv q.Invoice, subject, body string) error {
	to, err := q.New(tx).BillingPeople(ctx, inv.OrgID)
	if err != nil {
		return fmt.Errorf("invoice: who to write to: %w", err)
	}
	var bill Details
	if err := json.Unmarshal(inv.BillTo, &bill); err != nil {
		return fmt.Errorf("invoice: bill to: %w", err)
	}
	if bill.Email != "" && !slices.Contains(to, bill.Email) {
		to = append(to, bill.Email)
	}
	body += "\n\n" + s.c.PublicURL + "/billing/invoices/" + ids.Format(ids.Invoice, inv.ID) + "\n"
	for _, address := range to {
		if err := q.New(tx).InsertOutbox(ctx, q.InsertOutboxParams{ID: ids.New(), Recipient: address, Subject: subject, Body: body, CreatedAt: s.now()}); err != nil {
			return fmt.Errorf("invoice: mail: %w", err)
		}
	}
	return nil
}

// mailFinal tells of an invoice that something is due on.
func (s *Service) mailFinal(ctx context.Context, tx pgx.Tx, inv q.Invoice) error {
	if inv.TotalCents == 0 {
		return nil
	}
	month := inv.Month.Format("January 2006")
	return s.mail(ctx, tx, inv, "Invoice "+*inv.Number+" for "+month,
		fmt.Sprintf("Your usage of %s comes to %s, due by %s. Lines and a PDF are on the invoice's page.", month, dollars(inv.TotalCents), date(*inv.DueAt)))
}
