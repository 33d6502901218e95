package stripefake

import (
	"strings"
	"time"
)

// session is a page where a person pays or gives a card.
type session struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	Mode      string            `json:"mode"`
	Status    string            `json:"status"`
	Payment   string            `json:"payment_status"`
	Amount    int64             `json:"amount_total"`
	Currency  string            `json:"currency"`
	Customer  string            `json:"customer"`
	Reference string            `json:"client_reference_id"`
	Metadata  map[string]string `json:"metadata"`
	Intent    *string           `json:"payment_intent"`
	Setup     *string           `json:"setup_intent"`
	URL       *string           `json:"url"`
	Success   string            `json:"success_url"`
	Cancel    string            `json:"cancel_url"`
	Created   int64             `json:"created"`
	Expires   int64             `json:"expires_at"`
	Livemode  bool              `json:"livemode"`

	Keep     bool              `json:"test_keep"`
	Payments map[string]string `json:"test_payment_metadata"`
	Name     string            `json:"test_name"` // of what is bought
	AsksTax  bool              `json:"test_asks_tax"`
}

func sessionID(x *session) string { return x.ID }

// setupIntent keeps a card.
type setupIntent struct {
	ID       string  `json:"id"`
	Object   string  `json:"object"`
	Customer string  `json:"customer"`
	Method   *string `json:"payment_method"`
	Status   string  `json:"status"`
	Created  int64   `json:"created"`
	Livemode bool    `json:"livemode"`
}

func setupID(x *setupIntent) string { return x.ID }

// Lives of a page.
const (
	pageLife  = 24 * time.Hour
	leastLife = 30 * time.Minute
)

func (s *Server) createSession(c *call) *reply {
	p := c.params
	x := &session{ID: newID("cs"), Object: "checkout.session", Mode: p.Get("mode"), Status: "open", Payment: "unpaid", Currency: "usd", Customer: p.Get("customer"),
		Reference: p.Get("client_reference_id"), Metadata: c.metadata(""), Success: p.Get("success_url"), Cancel: p.Get("cancel_url"), Created: unix(s.now()),
		Expires: unix(s.now().Add(pageLife)), Keep: p.Get("payment_intent_data[setup_future_usage]") == "off_session", Payments: map[string]string{},
		AsksTax: p.Get("tax_id_collection[enabled]") == "true"}
	for k, v := range p {
		if name, found := strings.CutPrefix(k, "payment_intent_data[metadata]["); found {
			x.Payments[strings.TrimSuffix(name, "]")] = v[0]
		}
	}
	if p.Has("expires_at") {
		if x.Expires = c.number("expires_at"); x.Expires < unix(s.now().Add(leastLife)) {
			return invalid("expires_at", "The `expires_at` timestamp must be at least 30 minutes from Checkout Session creation.")
		}
	}
	switch {
	case find(s.mem.Customers, customerID, x.Customer) == nil:
		return missingParam("customer", x.Customer)
	case x.Success == "":
		return invalid("success_url", "You must provide success_url.")
	case x.Mode == "setup":
		x.Payment = "no_payment_required"
	case x.Mode == "payment" && p.Get("line_items[0][price_data][currency]") == "usd":
		const line = "line_items[0]"
		x.Amount = c.number(line+"[price_data][unit_amount]") * c.number(line+"[quantity]")
		x.Name = p.Get(line + "[price_data][product_data][name]")
		if x.Amount < 50 {
			return invalid("line_items", "The Checkout Session's total amount due must add up to at least $0.50 usd")
		}
	default:
		return invalid("mode", "This fake knows the modes payment, in usd, and setup.")
	}
	url := s.cfg.PageURL + "/pay/" + x.ID
	x.URL = &url
	s.mem.Sessions = append(s.mem.Sessions, x)
	return ok(s.showSession(c, x))
}

func (s *Server) showSession(c *call, x *session) any {
	setup := find(s.mem.Setups, setupID, text(x.Setup))
	if setup == nil || !c.wants("setup_intent.payment_method") {
		return x
	}
	type whole struct {
		setupIntent
		Method any `json:"payment_method"`
	}
	return struct {
		session
		Setup any `json:"setup_intent"`
	}{*x, whole{*setup, find(s.mem.Methods, methodID, text(setup.Method))}}
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func (s *Server) getSession(c *call) *reply {
	if x := find(s.mem.Sessions, sessionID, c.id); x != nil {
		return ok(s.showSession(c, x))
	}
	return missing("checkout.session", c.id)
}

func (s *Server) listSessions(c *call) *reply {
	return page(c, s.mem.Sessions, sessionID, func(x *session) int64 { return x.Created }, nil, func(x *session) any { return s.showSession(c, x) })
}

func (s *Server) expireSession(c *call) *reply {
	x := find(s.mem.Sessions, sessionID, c.id)
	if x == nil {
		return missing("checkout.session", c.id)
	}
	if x.Status != "open" {
		return invalid("session", "Only Checkout Sessions with a status in [\"open\"] can be expired.")
	}
	s.end(x, "expired")
	s.emit("checkout.session.expired", x)
	return ok(x)
}

// expire ends the pages whose time is over. The caller holds mu.
func (s *Server) expire() {
	now := unix(s.now())
	s.tellOverdue()
	for _, x := range s.mem.Sessions {
		if x.Status == "open" && x.Expires <= now {
			s.end(x, "expired")
			s.emit("checkout.session.expired", x)
		}
	}
}

func (s *Server) end(x *session, status string) { x.Status, x.URL = status, nil }

// Way is how a person pays on a page.
type Way struct {
	Number    string // of a card
	Confirmed bool   // the bank asked, and the person confirmed
	Later     bool   // the money arrives later (Settle), as with a bank debit
	TaxKind   string // of a tax id that is given with it
	TaxValue  string // "" = none
}

// outcome of a person's click.
type outcome struct {
	asks    bool   // the bank wants a confirmation
	problem string // for the person; "" = through
}

// complete is a person's click on a page.
func (s *Server) complete(x *session, w Way) outcome {
	number, good := cleanNumber(w.Number)
	switch {
	case x.Status != "open":
		return outcome{problem: "This page is over."}
	case !good:
		return outcome{problem: "This is not a card number. Use one of the test cards."}
	case asksCustomer(number) && !w.Confirmed:
		return outcome{asks: true}
	case x.Mode == "setup":
		return s.completeSetup(x, number)
	}
	if x.AsksTax && w.TaxValue != "" {
		if problem := s.addTaxID(x.Customer, w.TaxKind, w.TaxValue); problem != "" {
			return outcome{problem: problem}
		}
	}
	var in *intent
	if in = find(s.mem.Intents, intentID, text(x.Intent)); in == nil {
		in = s.newIntent(x.Amount, x.Customer, x.Payments)
		x.Intent = &in.ID
	}
	var kept *string
	if x.Keep {
		kept = &x.Customer
	}
	m := s.card(number, kept)
	if w.Later {
		ch := &charge{ID: newID("ch"), Object: "charge", Amount: in.Amount, Currency: in.Currency, Customer: in.Customer, Intent: in.ID, Method: &m.ID, Status: "pending", Created: unix(s.now())}
		s.mem.Charges = append(s.mem.Charges, ch)
		in.Status, in.Charge, in.Method = "processing", &ch.ID, &m.ID
		s.end(x, "complete")
		s.emit("payment_intent.processing", in)
		s.emit("checkout.session.completed", x)
		return outcome{}
	}
	if r := s.pay(in, m, true); r != nil {
		return outcome{problem: r.message}
	}
	x.Payment = "paid"
	s.end(x, "complete")
	s.emit("checkout.session.completed", x)
	return outcome{}
}

func (s *Server) completeSetup(x *session, number string) outcome {
	if r, bad := keepRefusal(number); bad {
		return outcome{problem: r.message}
	}
	m := s.card(number, &x.Customer)
	setup := &setupIntent{ID: newID("seti"), Object: "setup_intent", Customer: x.Customer, Method: &m.ID, Status: "succeeded", Created: unix(s.now())}
	s.mem.Setups = append(s.mem.Setups, setup)
	x.Setup = &setup.ID
	s.end(x, "complete")
	s.emit("setup_intent.succeeded", setup)
	s.emit("checkout.session.completed", x)
	return outcome{}
}
