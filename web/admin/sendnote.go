package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/billing/invoice"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/session"
	"millrace/web/ui"
)

// sendView is the form that says that a credit note is sent by hand, ready to draw.
type sendView struct {
	billForm
	note invoice.Note
}

func (p *pages) sendForm(c echo.Context) error { return p.showSend(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showSend(c echo.Context, status int, f *ui.Form) error {
	v := sendView{}
	var err error
	if v.billForm, err = p.billForm(c, f, "Send by hand a credit note for"); err != nil {
		return err
	}
	if v.note, err = v.bill.FindNote(c.Param("note")); err != nil {
		return err
	}
	switch {
	case v.note.Back != invoice.BackByStripe:
		return fault.New(fault.Conflict, "Nothing of this credit note goes back by the payment provider.")
	case !v.note.SentAt.IsZero():
		return fault.New(fault.Conflict, "This credit note was sent by hand already.")
	}
	return ui.Render(c, status, sendPage(v))
}

func (p *pages) sendNote(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	org, id, err := invoiceIDs(c)
	if err != nil {
		return err
	}
	note, err := ids.Parse(ids.Note, c.Param("note"))
	if err != nil {
		return notThere(err)
	}
	reason := readReason(f, "reason", operatorsRead)
	if f.OK() {
		waits, err := p.Bills.SendNoteByHand(c.Request().Context(), session.Must(c), org, id, note, reason, f.Get("id"))
		if err == nil {
			return p.afterBill(c, org, id, waits, "sent")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showSend(c, http.StatusUnprocessableEntity, f)
}
