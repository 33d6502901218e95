package webtest

import (
	"context"
	"net/url"
	"time"

	"millrace/billing/invoice"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/console"
	"millrace/web/session"
)

const chargeSentence = "Whenever an invoice of mine becomes final, charge what is due of it to the card that I keep here (now visa …4242) without asking me again. If the card is declined, charge it again 3 and 7 days later, or when I give another card. I can turn this off at any time."

// ChargeConsent is a sentence.
func (f *Fixture) ChargeConsent(context.Context, session.Viewer) (string, error) {
	return chargeSentence, nil
}

// ChargeInvoices charges no card.
func (f *Fixture) ChargeInvoices(_ context.Context, who session.Viewer, agreed string) error {
	if agreed != chargeSentence {
		return errSentence
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pay.charging = console.Charging{On: true, Consent: agreed, ConsentBy: who.Email, ConsentAt: Now}
	return nil
}

var errSentence = fault.New(fault.Conflict, "What you would agree to has changed since you saw it.").WithCode(fault.CodeSentenceChanged)

// StopCharging stops nothing.
func (f *Fixture) StopCharging(context.Context, session.Viewer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pay.charging = console.Charging{}
	return nil
}

// StartInvoiceOver mends it, too.
func (b business) StartInvoiceOver(ctx context.Context, who session.Viewer, org, id ids.ID) error {
	return b.RetryInvoice(ctx, who, org, id)
}

// compared is the last comparison of invoices: one that differs, and one that nobody here knows.
func compared() invoice.Comparison {
	return invoice.Comparison{At: ago(31 * time.Minute), Invoices: 42, Differences: []invoice.Difference{
		{Ref: "in_1PZ9aa", Org: ids.Format(ids.Org, id(kindOrg, 2)), Invoice: ids.Format(ids.Invoice, id(kindInvoice, 4)), What: "it is $912.15 usd there and $912.14 here"},
		{Ref: "in_1PZ0zz", Invoice: ids.Format(ids.Invoice, id(kindInvoice, 77)), What: "the payment provider has an invoice that is not known here"}}}
}

// chargePages are about invoices at the payment provider.
func chargePages() []Page {
	stuck := path("/admin/customers/", ids.Org, id(kindOrg, 2)) + path("/invoices/", ids.Invoice, id(kindInvoice, 4))
	return []Page{
		{Name: "charge", Path: "/billing/payment/invoices", Who: Member},
		{Name: "charge-changed", Path: "/billing/payment/invoices", Who: Member, Form: "sentence=" + url.QueryEscape("Charge another card."), Status: 422},
		{Name: "charge-agreed", Path: "/billing/payment/invoices", Who: Member, Form: "sentence=" + url.QueryEscape(chargeSentence), Status: 303},
		{Name: "charge-stop", Path: "/billing/payment/invoices/stop", Who: Member, Form: "x=1", Status: 303},
		{Name: "admin-invoice-retry", Path: stuck + "/retry", Who: Operator, Form: "x=1", Status: 303},
		{Name: "admin-invoice-start-over", Path: stuck + "/start-over", Who: Operator, Form: "x=1", Status: 303},
	}
}
