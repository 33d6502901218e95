package invoice

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
)

// mailStep writes to everyone who looks after the organization's money, in the caller's transaction.
func (c *Collector) mailStep(ctx context.Context, tx pgx.Tx, inv q.Invoice, push q.InvoicePush, step int32) error {
	due, number := dollars(unpaid(inv)), *inv.Number
	subject, text := "Invoice "+number+" is overdue", fmt.Sprintf("%s of invoice %s should have been paid by %s.", due, number, inv.DueAt.UTC().Format("2 January 2006"))
	if push.FailedAt != nil && c.s.now().Before(*inv.DueAt) {
		subject, text = "Your card was declined for invoice "+number, fmt.Sprintf("Your card was declined when %s of invoice %s were charged. Pay on the invoice's page, or give another card.", due, number)
	}
	switch step {
	case remindAgain:
		subject = "Reminder: invoice " + number
	case remindLast:
		subject = "Last reminder: invoice " + number
		text += fmt.Sprintf(" Without the payment, nothing more can be used on your credit limit from day %d on, and your API keys stop working on day %d.", limitAfter, suspendAfter)
	case limitAfter:
		subject = "Nothing more can be used on your credit limit"
		text += " Until it is paid, only prepaid credit can be used."
	case suspendAfter:
		subject = "Your API keys are suspended"
		text += " Until it is paid, requests are refused. Everything works again by itself soon after the payment."
	}
	if push.Url != "" && c.On() {
		text += "\n\nPay here: " + push.Url
	}
	return c.mail(ctx, tx, inv, subject, text)
}

func (c *Collector) mailUndone(ctx context.Context, tx pgx.Tx, inv q.Invoice) error {
	return c.mail(ctx, tx, inv, "Thank you: invoice "+*inv.Number+" is settled", "What was restricted because of it works again.")
}

// mail writes to whoever invoices go to, and says that no money moves where that is so.
func (c *Collector) mail(ctx context.Context, tx pgx.Tx, inv q.Invoice, subject, body string) error {
	if c.Test() {
		body = "Payments are a test here: no money moves.\n\n" + body
	}
	return c.s.mail(ctx, tx, inv, subject, body)
}
