package stripefake

// customer is who pays.
type customer struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Name     string            `json:"name"`
	Email    string            `json:"email"`
	Created  int64             `json:"created"`
	Livemode bool              `json:"livemode"`
	Metadata map[string]string `json:"metadata"`
}

func customerID(x *customer) string { return x.ID }

func (s *Server) createCustomer(c *call) *reply {
	x := &customer{ID: newID("cus"), Object: "customer", Name: c.params.Get("name"), Email: c.params.Get("email"), Created: unix(s.now()), Metadata: c.metadata("")}
	s.mem.Customers = append(s.mem.Customers, x)
	s.emit("customer.created", x)
	return ok(x)
}

func (s *Server) getCustomer(c *call) *reply {
	if x := find(s.mem.Customers, customerID, c.id); x != nil {
		return ok(x)
	}
	return missing("customer", c.id)
}

func (s *Server) updateCustomer(c *call) *reply {
	x := find(s.mem.Customers, customerID, c.id)
	if x == nil {
		return missing("customer", c.id)
	}
	if c.params.Has("name") {
		x.Name = c.params.Get("name")
	}
	if c.params.Has("email") {
		x.Email = c.params.Get("email")
	}
	s.emit("customer.updated", x)
	return ok(x)
}

// method is a card.
type method struct {
	ID       string  `json:"id"`
	Object   string  `json:"object"`
	Type     string  `json:"type"`
	Customer *string `json:"customer"`
	Created  int64   `json:"created"`
	Livemode bool    `json:"livemode"`
	Card     struct {
		Brand    string `json:"brand"`
		Last4    string `json:"last4"`
		ExpMonth int64  `json:"exp_month"`
		ExpYear  int64  `json:"exp_year"`
	} `json:"card"`
	Number string `json:"test_number"` // decides how it behaves
}

func methodID(x *method) string { return x.ID }

// card makes a method of a card number. The caller holds mu.
func (s *Server) card(number string, kept *string) *method {
	x := &method{ID: newID("pm"), Object: "payment_method", Type: "card", Customer: kept, Created: unix(s.now()), Number: number}
	x.Card.Brand, x.Card.Last4 = brandOf(number), number[len(number)-4:]
	x.Card.ExpMonth, x.Card.ExpYear = 12, int64(s.now().Year()+3)
	s.mem.Methods = append(s.mem.Methods, x)
	return x
}

func (s *Server) getMethod(c *call) *reply {
	if x := find(s.mem.Methods, methodID, c.id); x != nil {
		return ok(x)
	}
	return missing("payment_method", c.id)
}

func (s *Server) detachMethod(c *call) *reply {
	x := find(s.mem.Methods, methodID, c.id)
	if x == nil {
		return missing("payment_method", c.id)
	}
	if x.Customer == nil {
		return invalid("payment_method", "The payment method you provided is not attached to a customer so detachment is impossible.")
	}
	s.detach(x)
	return ok(x)
}

func (s *Server) detach(x *method) {
	x.Customer = nil
	s.emit("payment_method.detached", x)
}
