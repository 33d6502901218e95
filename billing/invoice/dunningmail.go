package invoice

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
)

// mailStep writes to everyone who looks after the organization's money, in the caller's transaction.
func (c *Collector) mailStep(ctx context.Context, tx pgx.Tx, x *dunnable, step int32) error {
	inv, back := x.Invoice, x.ClawedCents > 0
	due, number := dollars(unpaid(inv)), *inv.Number
	subject, text := "Invoice "+number+" is overdue", fmt.Sprintf("%s of invoice %s should have been paid by %s.", due, number, date(*inv.DueAt))
	switch {
	case x.ReopenedAt != nil:
		subject, text = "Invoice "+number+" is due again", fmt.Sprintf("A payment of invoice %s went back on %s: %s are due again.", number, date(*x.ReopenedAt), due)
	case x.FailedAt != nil && c.s.now().Before(*inv.DueAt):
		subject, text = "Your card was declined for invoice "+number, fmt.Sprintf("Your card was declined when %s of invoice %s were charged. Pay on the invoice's page, or give another card.", due, number)
	}
	switch step {
	case remindAgain:
		subject = "Reminder: invoice " + number
	case remindLast:
		subject = "Last reminder: invoice " + number
		if x.restricts() {
			text += fmt.Sprintf(" Without the payment, nothing more can be used on your credit limit from day %d on, and your API keys stop working on day %d.", limitAfter, suspendAfter)
		}
	case limitAfter:
		subject = "Nothing more can be used on your credit limit"
		text += " Until it is paid, only prepaid credit can be used."
	case suspendAfter:
		subject = "Your API keys are suspended"
		text += " Until it is paid, requests are refused. Everything works again by itself soon after the payment."
	}
	switch {
	case back: // the payment provider's page shows it as paid
		text += "\n\nPay by bank transfer, with the invoice's number."
	case x.Url != "" && c.On():
		text += "\n\nPay here: " + x.Url
	}
	return c.mail(ctx, tx, inv, subject, text)
}

func (c *Collector) mailUndone(ctx context.Context, tx pgx.Tx, inv q.Invoice) error {
	subject := "Thank you: invoice " + *inv.Number + " is settled"
	if unpaid(inv) > 0 {
		subject = "Thank you for your payment of invoice " + *inv.Number
	}
	return c.mail(ctx, tx, inv, subject, "What was restricted because of it works again.")
}

// mail writes to whoever invoices go to, and says that no money moves where that is so.
func (c *Collector) mail(ctx context.Context, tx pgx.Tx, inv q.Invoice, subject, body string) error {
	if c.Test() {
		body = "Payments are a test here: no money moves.\n\n" + body
	}
	return c.s.mail(ctx, tx, inv, subject, body)
}
