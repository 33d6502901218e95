package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/billing/invoice"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/bill"
	"millrace/web/session"
	"millrace/web/ui"
)

// reversalView is the form that takes a payment back, ready to draw.
type reversalView struct {
	billForm
	payment invoice.Payment
}

func (p *pages) reversalForm(c echo.Context) error {
	return p.showReversal(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showReversal(c echo.Context, status int, f *ui.Form) error {
	v := reversalView{}
	var err error
	if v.billForm, err = p.billForm(c, f, "Take back a payment of"); err != nil {
		return err
	}
	for _, x := range v.bill.Payments {
		if ids.Format(bill.PaymentPrefix, x.ID) == c.Param("payment") {
			v.payment = x
		}
	}
	switch {
	case v.payment.ID == ids.Nil:
		return notThere(nil)
	case !v.payment.ReversedAt.IsZero():
		return fault.New(fault.Conflict, "This payment was taken back already.")
	case v.payment.Method != bill.ByHand:
		return fault.New(fault.Conflict, "It came by the payment provider. Refund it there.")
	}
	return ui.Render(c, status, reversalPage(v))
}

func (p *pages) reversePayment(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	org, id, err := invoiceIDs(c)
	if err != nil {
		return err
	}
	payment, err := ids.Parse(bill.PaymentPrefix, c.Param("payment"))
	if err != nil {
		return notThere(err)
	}
	reason := readReason(f, "reason", operatorsRead)
	if f.OK() {
		err := p.Bills.ReversePayment(c.Request().Context(), session.Must(c), org, id, payment, reason)
		if err == nil {
			return p.afterBill(c, org, id, false, "reversed")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showReversal(c, http.StatusUnprocessableEntity, f)
}
