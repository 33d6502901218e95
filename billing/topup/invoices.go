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
