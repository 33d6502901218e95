package stripefake

import (
	"fmt"
	"net/http"
	"slices"
)

// refund is money that was given back.
type refund struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Amount   int64  `json:"amount"`
	Charge   string `json:"charge"`
	Intent   string `json:"payment_intent"`
	Currency string `json:"currency"`
	Status   string `json:"status"`
	Created  int64  `json:"created"`
}

// dispute is money that the customer's bank took back, for now.
type dispute struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Amount   int64  `json:"amount"`
	Charge   string `json:"charge"`
	Intent   string `json:"payment_intent"`
	Currency string `json:"currency"`
	Status   string `json:"status"`
	Reason   string `json:"reason"`
	Created  int64  `json:"created"`
	Livemode bool   `json:"livemode"`
}

func disputeID(x *dispute) string { return x.ID }

// chargeOf is the charge that an intent's money came by.
func (s *Server) chargeOf(intentWanted string) *charge {
	for _, ch := range s.mem.Charges {
		if ch.Intent == intentWanted && ch.Paid {
			return ch
		}
	}
	return nil
}

func (s *Server) createRefund(c *call) *reply {
	ch := s.chargeOf(c.params.Get("payment_intent"))
	if ch == nil {
		return missingParam("payment_intent", c.params.Get("payment_intent"))
	}
	cents := ch.Amount - ch.Refunded
	if c.params.Has("amount") {
		cents = c.number("amount")
	}
	if cents <= 0 || cents > ch.Amount-ch.Refunded {
		return failure(http.StatusBadRequest, "invalid_request_error", "charge_already_refunded", "The refund is larger than what is left of the charge.")
	}
	return ok(s.refund(ch, cents))
}

func (s *Server) refund(ch *charge, cents int64) *refund {
	x := &refund{ID: newID("re"), Object: "refund", Amount: cents, Charge: ch.ID, Intent: ch.Intent, Currency: ch.Currency, Status: "succeeded", Created: unix(s.now())}
	s.mem.Refunds = append(s.mem.Refunds, x)
	ch.Refunded += cents
	ch.Whole = ch.Refunded == ch.Amount
	s.emit("charge.refunded", ch)
	return x
}

// Refund gives money of a payment back, as somebody would in the payment provider's own pages.
func (s *Server) Refund(payment string, cents int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.chargeOf(payment)
	if ch == nil || cents <= 0 || cents > ch.Amount-ch.Refunded {
		return fmt.Errorf("stripefake: %s cannot be refunded by %d", payment, cents)
	}
	s.refund(ch, cents)
	s.save()
	return nil
}

// FailRefund lets the newest refund of a payment fail, as when the customer's bank sends it back.
func (s *Server) FailRefund(payment string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.chargeOf(payment)
	for _, x := range slices.Backward(s.mem.Refunds) {
		if ch == nil || x.Intent != payment || x.Status != "succeeded" {
			continue
		}
		x.Status = "failed"
		ch.Refunded -= x.Amount
		ch.Whole = false
		s.emit("charge.refund.updated", x)
		s.save()
		return nil
	}
	return fmt.Errorf("stripefake: %s has no refund that could fail", payment)
}

func (s *Server) dispute(ch *charge) *dispute {
	x := &dispute{ID: newID("dp"), Object: "dispute", Amount: ch.Amount, Charge: ch.ID, Intent: ch.Intent, Currency: ch.Currency, Status: "needs_response", Reason: "fraudulent", Created: unix(s.now())}
	s.mem.Disputes = append(s.mem.Disputes, x)
	ch.Disputed = true
	s.emit("charge.dispute.created", x)
	s.emit("charge.dispute.funds_withdrawn", x)
	return x
}

// Dispute lets the customer's bank take a payment's money back.
func (s *Server) Dispute(payment string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.chargeOf(payment)
	if ch == nil || ch.Disputed {
		return fmt.Errorf("stripefake: %s cannot be disputed", payment)
	}
	s.dispute(ch)
	s.save()
	return nil
}

// CloseDispute ends the dispute of a payment; a won one brings the money back.
func (s *Server) CloseDispute(payment string, won bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.mem.Disputes {
		if x.Intent != payment || x.Status != "needs_response" {
			continue
		}
		x.Status = "lost"
		if won {
			x.Status = "won"
			s.emit("charge.dispute.funds_reinstated", x)
		}
		s.emit("charge.dispute.closed", x)
		s.save()
		return nil
	}
	return fmt.Errorf("stripefake: %s has no open dispute", payment)
}

func (s *Server) listDisputes(c *call) *reply {
	payment := c.params.Get("payment_intent")
	return page(c, s.mem.Disputes, disputeID, func(x *dispute) int64 { return x.Created },
		func(x *dispute) bool { return payment == "" || x.Intent == payment }, func(x *dispute) any { return x })
}
