package topup

import (
	"context"

	"millrace/db/q"
	"millrace/internal/ids"
)

// InvoiceCustomer is an organization at the payment provider, made when it is first needed, and its kept card when invoices
// may be charged to it: invoice.Customers.
func (s *Service) InvoiceCustomer(ctx context.Context, org ids.ID) (customer, method string, err error) {
	if !s.On() {
		return "", "", errOff
	}
	if customer, err = s.customer(ctx, org); err != nil {
		return "", "", err
	}
	err = s.inOrg(ctx, org, func(r *q.Queries) error {
		row, err := r.PaymentCustomer(ctx, org)
		if err == nil && row.ChargeInvoices {
			method = text(row.MethodID)
		}
		return found(err, "customer at the payment provider")
	})
	return customer, method, err
}

// AnotherCustomer makes the organization known anew at a payment provider that knows it no more: invoice.Customers.
func (s *Service) AnotherCustomer(ctx context.Context, org ids.ID, gone string) (customer string, err error) {
	if !s.On() {
		return "", errOff
	}
	return s.anotherCustomer(ctx, org, gone)
}
