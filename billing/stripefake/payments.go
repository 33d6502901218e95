package stripefake

import (
	"net/http"
)

// intent is a payment.
type intent struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	Amount    int64             `json:"amount"`
	Received  int64             `json:"amount_received"`
	Currency  string            `json:"currency"`
	Customer  string            `json:"customer"`
	Method    *string           `json:"payment_method"`
	Charge    *string           `json:"latest_charge"`
	Status    string            `json:"status"`
	Metadata  map[string]string `json:"metadata"`
	LastError *apiError         `json:"last_payment_error"`
	Invoice   *string           `json:"invoice"`
	Created   int64             `json:"created"`
	Livemode  bool              `json:"livemode"`
}

func intentID(x *intent) string { return x.ID }

// charge is one try to take the money.
type charge struct {
	ID       string  `json:"id"`
	Object   string  `json:"object"`
	Amount   int64   `json:"amount"`
	Refunded int64   `json:"amount_refunded"`
	Currency string  `json:"currency"`
	Customer string  `json:"customer"`
	Intent   string  `json:"payment_intent"`
	Method   *string `json:"payment_method"`
	Status   string  `json:"status"`
	Paid     bool    `json:"paid"`
	Whole    bool    `json:"refunded"`
	Disputed bool    `json:"disputed"`
	Balance  *string `json:"balance_transaction"`
	Failure  string  `json:"failure_code,omitempty"`
	Created  int64   `json:"created"`
	Livemode bool    `json:"livemode"`
}

func chargeID(x *charge) string { return x.ID }

// fee is 2.9 % and 30 cents, half a cent up.
func fee(cents int64) int64 { return (cents*29+500)/1000 + 30 }

// HoldFees says whether fees are unknown for now, as the payment provider's are until it has booked a payment.
func (s *Server) HoldFees(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeless = on
}

// show is an intent with what the request wants whole.
func (s *Server) show(c *call, x *intent) any {
	out := struct {
		intent
		Method any `json:"payment_method"`
		Charge any `json:"latest_charge"`
	}{intent: *x, Method: x.Method, Charge: x.Charge}
	if x.Method != nil && c.wants("payment_method") {
		out.Method = find(s.mem.Methods, methodID, *x.Method)
	}
	if x.Charge != nil && (c.wants("latest_charge") || c.wants("latest_charge.balance_transaction")) {
		out.Charge = s.showCharge(c, find(s.mem.Charges, chargeID, *x.Charge))
	}
	return out
}

func (s *Server) showCharge(c *call, x *charge) any {
	if x == nil || x.Balance == nil || !c.wants("latest_charge.balance_transaction") {
		return x
	}
	if s.feeless {
		fresh := *x
		fresh.Balance = nil
		return &fresh
	}
	return struct {
		charge
		Balance any `json:"balance_transaction"`
	}{*x, map[string]any{"id": *x.Balance, "object": "balance_transaction", "amount": x.Amount, "fee": fee(x.Amount), "net": x.Amount - fee(x.Amount), "currency": x.Currency}}
}

func (s *Server) getIntent(c *call) *reply {
	if x := find(s.mem.Intents, intentID, c.id); x != nil {
		return ok(s.show(c, x))
	}
	return missing("payment_intent", c.id)
}

func (s *Server) listIntents(c *call) *reply {
	customer := c.params.Get("customer")
	if customer != "" && find(s.mem.Customers, customerID, customer) == nil {
		return missingParam("customer", customer)
	}
	return page(c, s.mem.Intents, intentID, func(x *intent) int64 { return x.Created },
		func(x *intent) bool { return customer == "" || x.Customer == customer }, func(x *intent) any { return s.show(c, x) })
}

// createIntent charges a kept card while nobody is there: the only way in which Millrace makes payments by the API.
func (s *Server) createIntent(c *call) *reply {
	p := c.params
	if p.Get("confirm") != "true" || p.Get("off_session") != "true" || p.Get("error_on_requires_action") != "true" {
		return invalid("confirm", "This fake knows payments that are confirmed at once and off session.")
	}
	m := find(s.mem.Methods, methodID, p.Get("payment_method"))
	switch {
	case find(s.mem.Customers, customerID, p.Get("customer")) == nil:
		return missingParam("customer", p.Get("customer"))
	case m == nil:
		return missingParam("payment_method", p.Get("payment_method"))
	case m.Customer == nil || *m.Customer != p.Get("customer"):
		return invalid("payment_method", "The payment method does not belong to the customer.")
	case c.number("amount") < 50 || p.Get("currency") != "usd":
		return invalid("amount", "Amount must be at least $0.50 usd.")
	}
	x := s.newIntent(c.number("amount"), p.Get("customer"), c.metadata(""))
	if r := s.pay(x, m, false); r != nil {
		out := failure(http.StatusPaymentRequired, "card_error", r.code, r.message)
		out.body = map[string]any{"error": apiError{Type: "card_error", Code: r.code, DeclineCode: r.decline, Message: r.message, Charge: *x.Charge, Intent: s.show(c, x)}}
		out.retry = "false" // the same call would get the same answer; of the card's next charge it says nothing
		return out
	}
	return ok(s.show(c, x))
}

func (s *Server) newIntent(cents int64, customer string, metadata map[string]string) *intent {
	x := &intent{ID: newID("pi"), Object: "payment_intent", Amount: cents, Currency: "usd", Customer: customer, Status: "requires_payment_method", Metadata: metadata, Created: unix(s.now())}
	s.mem.Intents = append(s.mem.Intents, x)
	s.emit("payment_intent.created", x)
	return x
}

// pay takes the money for an intent, or says why not.
func (s *Server) pay(x *intent, m *method, here bool) *refusal {
	ch := &charge{ID: newID("ch"), Object: "charge", Amount: x.Amount, Currency: x.Currency, Customer: x.Customer, Intent: x.ID, Method: &m.ID, Created: unix(s.now())}
	s.mem.Charges = append(s.mem.Charges, ch)
	x.Charge, x.LastError = &ch.ID, nil
	if r, bad := chargeRefusal(m.Number, here); bad {
		ch.Status, ch.Failure = "failed", r.code
		x.Status, x.LastError = "requires_payment_method", &apiError{Type: "card_error", Code: r.code, DeclineCode: r.decline, Message: r.message, Charge: ch.ID}
		s.emit("charge.failed", ch)
		s.emit("payment_intent.payment_failed", x)
		return &r
	}
	x.Method = &m.ID
	s.arrive(x, ch)
	if m.Number == CardDisputed {
		s.dispute(ch)
	}
	return nil
}

// arrive is the money's arrival.
func (s *Server) arrive(x *intent, ch *charge) {
	balance := newID("txn")
	ch.Status, ch.Paid, ch.Balance = "succeeded", true, &balance
	x.Status, x.Received = "succeeded", x.Amount
	s.emit("charge.succeeded", ch)
	s.emit("payment_intent.succeeded", x)
}
