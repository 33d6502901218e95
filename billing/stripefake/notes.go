package stripefake

import (
	"net/http"
)

// creditNote takes back a part of an invoice.
type creditNote struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Invoice  string            `json:"invoice"`
	Customer string            `json:"customer"`
	Currency string            `json:"currency"`
	Amount   int64             `json:"amount"`
	Total    int64             `json:"total"`
	Memo     string            `json:"memo"`
	Metadata map[string]string `json:"metadata"`
	Type     string            `json:"type"` // pre_payment or post_payment
	Status   string            `json:"status"`
	Refund   *string           `json:"refund"`
	Outside  int64             `json:"out_of_band_amount"`
	Created  int64             `json:"created"`
	Voided   *int64            `json:"voided_at"`
	Livemode bool              `json:"livemode"`
}

func noteID(x *creditNote) string { return x.ID }

func (s *Server) createNote(c *call) *reply {
	x := find(s.mem.Invoices, invoiceID, c.params.Get("invoice"))
	if x == nil {
		return missingParam("invoice", c.params.Get("invoice"))
	}
	n := &creditNote{ID: newID("cn"), Object: "credit_note", Invoice: x.ID, Customer: x.Customer, Currency: x.Currency, Amount: c.number("amount"), Memo: c.params.Get("memo"), Metadata: c.metadata(""),
		Status: "issued", Created: unix(s.now()), Outside: c.number("out_of_band_amount")}
	n.Total = n.Amount
	if n.Amount <= 0 || n.Amount > x.Total-x.Before-x.After {
		return invalid("amount", "The credit note is larger than what is left of the invoice.")
	}
	switch x.Status {
	case "open", "uncollectible":
		if n.Amount > x.Remaining {
			return invalid("amount", "The credit note is larger than what remains to be paid.")
		}
		n.Type = "pre_payment"
		s.lower(x, n.Amount)
	case "paid":
		n.Type = "post_payment"
		if r := s.payBack(c, x, n); r != nil {
			return r
		}
		x.After += n.Amount
	default:
		return notNow(x, "credited")
	}
	s.mem.Notes = append(s.mem.Notes, n)
	s.emit("credit_note.created", n)
	if x.Status != "paid" && x.Remaining == 0 {
		s.settleInvoice(x)
	}
	return ok(n)
}

// lower takes a part off what remains to be paid.
func (s *Server) lower(x *invoice, cents int64) {
	x.Before += cents
	x.Due -= cents
	x.Remaining -= cents
	if in := find(s.mem.Intents, intentID, text(x.Intent)); in != nil {
		in.Amount = x.Remaining
	}
}

// payBack says where the money of a paid invoice goes: back to the card, or by other ways.
func (s *Server) payBack(c *call, x *invoice, n *creditNote) *reply {
	refund := c.number("refund_amount")
	if refund+n.Outside+c.number("credit_amount") != n.Amount {
		return invalid("refund_amount", "The sum of credit amount, refund amount and out of band amount must equal the credit note amount.")
	}
	if refund == 0 {
		return nil
	}
	ch := s.chargeOf(text(x.Intent))
	if ch == nil || refund > ch.Amount-ch.Refunded {
		return failure(http.StatusBadRequest, "invalid_request_error", "charge_already_refunded", "The refund is larger than what is left of the charge.")
	}
	n.Refund = &s.refund(ch, refund).ID
	return nil
}

func (s *Server) getNote(c *call) *reply {
	if n := find(s.mem.Notes, noteID, c.id); n != nil {
		return ok(n)
	}
	return missing("credit_note", c.id)
}

func (s *Server) listNotes(c *call) *reply {
	wanted := c.params.Get("invoice")
	return page(c, s.mem.Notes, noteID, func(n *creditNote) int64 { return n.Created }, func(n *creditNote) bool { return wanted == "" || n.Invoice == wanted }, func(n *creditNote) any { return n })
}

func (s *Server) voidNote(c *call) *reply {
	n := find(s.mem.Notes, noteID, c.id)
	if n == nil {
		return missing("credit_note", c.id)
	}
	x := find(s.mem.Invoices, invoiceID, n.Invoice)
	if n.Status != "issued" || n.Type != "pre_payment" || x == nil || x.Status != "open" {
		return invalid("id", "Only credit notes of open invoices can be voided.")
	}
	s.lower(x, -n.Amount)
	n.Status, n.Voided = "void", s.stamp()
	s.emit("credit_note.voided", n)
	return ok(n)
}
