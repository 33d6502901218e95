package stripefake

import (
	"fmt"
	"net/http"
	"time"
)

// notNow is the answer to a step that an invoice's state does not allow.
func notNow(x *invoice, what string) *reply {
	return failure(http.StatusBadRequest, "invalid_request_error", "invoice_not_editable", fmt.Sprintf("This invoice is %s: it cannot be %s.", x.Status, what))
}

// step runs one step of an invoice that is in one of these states.
func (s *Server) step(c *call, what string, states []string, do func(x *invoice) *reply) *reply {
	x := find(s.mem.Invoices, invoiceID, c.id)
	if x == nil {
		return missing("invoice", c.id)
	}
	for _, state := range states {
		if x.Status != state {
			continue
		}
		if r := do(x); r != nil {
			return r
		}
		return ok(s.showInvoice(c, x))
	}
	return notNow(x, what)
}

func (s *Server) tell(kind string, x *invoice) { s.emit("invoice."+kind, s.showInvoice(nil, x)) }

func (s *Server) stamp() *int64 {
	at := unix(s.now())
	return &at
}

func (s *Server) finalizeInvoice(c *call) *reply {
	return s.step(c, "finalized", []string{"draft"}, func(x *invoice) *reply {
		if c.params.Has("auto_advance") {
			x.AutoAdvance = c.params.Get("auto_advance") == "true"
		}
		if s.unfinal > 0 {
			s.unfinal--
			x.Problem = &apiError{Type: "invalid_request_error", Code: "customer_tax_location_invalid", Message: "The customer's location isn't recognized."}
			s.tell("finalization_failed", x)
			return failure(http.StatusBadRequest, x.Problem.Type, x.Problem.Code, x.Problem.Message)
		}
		s.finalize(x)
		return nil
	})
}

func (s *Server) finalize(x *invoice) {
	if x.Number == nil {
		s.mem.Number++
		number := fmt.Sprintf("TEST-%04d", s.mem.Number)
		x.Number = &number
	}
	url := s.cfg.PageURL + "/invoice/" + x.ID
	pdf := url + "/pdf"
	x.Status, x.Page, x.PDF, x.Problem, x.When.Finalized = "open", &url, &pdf, nil, s.stamp()
	if x.Collection == "send_invoice" {
		due := unix(s.now().Add(time.Duration(x.Days) * 24 * time.Hour))
		x.DueDate = &due
	}
	if x.Total > 0 {
		in := s.newIntent(x.Total, x.Customer, map[string]string{})
		in.Invoice = &x.ID
		x.Intent = &in.ID
	}
	s.tell("finalized", x)
	if x.Total <= 0 {
		s.settleInvoice(x)
	}
}

// settleInvoice ends an invoice of which nothing remains.
func (s *Server) settleInvoice(x *invoice) {
	x.Status, x.Paid, x.Remaining, x.When.Paid = "paid", true, 0, s.stamp()
	s.tell("paid", x)
}

// sendInvoice mails it: the fake only counts.
func (s *Server) sendInvoice(c *call) *reply {
	return s.step(c, "sent", []string{"open"}, func(x *invoice) *reply {
		if x.Collection != "send_invoice" {
			return invalid("id", "You can only manually send an invoice if its collection method is 'send_invoice'.")
		}
		x.Sent++
		s.tell("sent", x)
		return nil
	})
}

func (s *Server) payInvoice(c *call) *reply {
	return s.step(c, "paid", []string{"open", "uncollectible"}, func(x *invoice) *reply {
		if c.params.Get("paid_out_of_band") == "true" {
			x.OutOfBand, x.PaidCents = true, 0
			if in := find(s.mem.Intents, intentID, text(x.Intent)); in != nil {
				in.Status = "canceled"
				s.emit("payment_intent.canceled", in)
			}
			s.settleInvoice(x)
			return nil
		}
		m := find(s.mem.Methods, methodID, c.params.Get("payment_method"))
		if m == nil || m.Customer == nil || *m.Customer != x.Customer {
			return invalid("payment_method", "There is no payment method of this customer to charge.")
		}
		if r := s.chargeInvoice(x, m, c.params.Get("off_session") == "false"); r != nil {
			out := failure(http.StatusPaymentRequired, "card_error", r.code, r.message)
			in := find(s.mem.Intents, intentID, text(x.Intent))
			out.body = map[string]any{"error": apiError{Type: "card_error", Code: r.code, DeclineCode: r.decline, Message: r.message, Charge: text(in.Charge), Intent: s.show(c, in)}}
			out.retry = "false"
			return out
		}
		return nil
	})
}

// chargeInvoice takes what remains of an invoice from a card, or says why not.
func (s *Server) chargeInvoice(x *invoice, m *method, here bool) *refusal {
	in := find(s.mem.Intents, intentID, text(x.Intent))
	in.Amount = x.Remaining
	x.Attempts++
	x.Attempted = true
	if r := s.pay(in, m, here); r != nil {
		x.Charge = in.Charge
		if r.code == authNeeded.code {
			s.tell("payment_action_required", x)
		}
		s.tell("payment_failed", x)
		return r
	}
	x.Charge, x.PaidCents = in.Charge, x.Remaining
	s.settleInvoice(x)
	return nil
}

func (s *Server) voidInvoice(c *call) *reply {
	return s.step(c, "voided", []string{"open", "uncollectible"}, func(x *invoice) *reply { s.void(x); return nil })
}

func (s *Server) void(x *invoice) {
	x.Status, x.When.Voided = "void", s.stamp()
	s.tell("voided", x)
}

func (s *Server) giveUpInvoice(c *call) *reply {
	return s.step(c, "marked uncollectible", []string{"open"}, func(x *invoice) *reply {
		x.Status, x.When.Uncollectible = "uncollectible", s.stamp()
		s.tell("marked_uncollectible", x)
		return nil
	})
}

// FailFinalize lets the next so many drafts not become final, as when a customer's place for taxes is not known.
func (s *Server) FailFinalize(times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unfinal = times
}

// VoidInvoice voids an invoice as somebody would in the payment provider's own pages.
func (s *Server) VoidInvoice(invoiceWanted string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := find(s.mem.Invoices, invoiceID, invoiceWanted)
	if x == nil || x.Status != "open" && x.Status != "uncollectible" {
		return fmt.Errorf("stripefake: %s cannot be voided", invoiceWanted)
	}
	s.void(x)
	s.save()
	return nil
}

// PayInvoice is what a person does on an invoice's page, without the page. The answer is what the page would say; "" =
// through.
func (s *Server) PayInvoice(invoiceWanted string, w Way) (problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := find(s.mem.Invoices, invoiceID, invoiceWanted)
	if x == nil {
		return "There is no such invoice."
	}
	out := s.clickInvoice(x, w)
	s.save()
	if out.asks {
		return "Your bank asks you to confirm."
	}
	return out.problem
}

// clickInvoice is a person's click on an invoice's page.
func (s *Server) clickInvoice(x *invoice, w Way) outcome {
	number, good := cleanNumber(w.Number)
	switch {
	case x.Status != "open" && x.Status != "uncollectible":
		return outcome{problem: "This invoice is " + x.Status + "."}
	case !good:
		return outcome{problem: "This is not a card number. Use one of the test cards."}
	case asksCustomer(number) && !w.Confirmed:
		return outcome{asks: true}
	}
	if r := s.chargeInvoice(x, s.card(number, nil), true); r != nil {
		return outcome{problem: r.message}
	}
	return outcome{}
}
