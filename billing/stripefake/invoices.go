package stripefake

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// billing is the part of the memory that invoices are in.
type billing struct {
	Invoices []*invoice
	Notes    []*creditNote
	Hooks    []*webhookEndpoint
	Number   int64 // of the last invoice that was finalised
}

// invoice is a bill, from its draft on.
type invoice struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Number      *string           `json:"number"`
	Status      string            `json:"status"`
	Customer    string            `json:"customer"`
	Currency    string            `json:"currency"`
	Collection  string            `json:"collection_method"`
	AutoAdvance bool              `json:"auto_advance"`
	Subtotal    int64             `json:"subtotal"`
	Total       int64             `json:"total"`
	Due         int64             `json:"amount_due"`
	PaidCents   int64             `json:"amount_paid"`
	Remaining   int64             `json:"amount_remaining"`
	Before      int64             `json:"pre_payment_credit_notes_amount"`
	After       int64             `json:"post_payment_credit_notes_amount"`
	Attempts    int64             `json:"attempt_count"`
	Attempted   bool              `json:"attempted"`
	Paid        bool              `json:"paid"`
	OutOfBand   bool              `json:"paid_out_of_band"`
	Created     int64             `json:"created"`
	DueDate     *int64            `json:"due_date"`
	Page        *string           `json:"hosted_invoice_url"`
	PDF         *string           `json:"invoice_pdf"`
	Intent      *string           `json:"payment_intent"`
	Charge      *string           `json:"charge"`
	Metadata    map[string]string `json:"metadata"`
	Description string            `json:"description"`
	Footer      string            `json:"footer"`
	Problem     *apiError         `json:"last_finalization_error"`
	When        transitions       `json:"status_transitions"`
	Livemode    bool              `json:"livemode"`

	Lines   []*invoiceLine `json:"test_lines"`
	Days    int64          `json:"test_days_until_due"`
	WasLate bool           `json:"test_overdue"` // its event was sent
	Sent    int64          `json:"test_sent"`    // how often it was mailed
}

// transitions say when an invoice became what it is.
type transitions struct {
	Finalized     *int64 `json:"finalized_at"`
	Paid          *int64 `json:"paid_at"`
	Voided        *int64 `json:"voided_at"`
	Uncollectible *int64 `json:"marked_uncollectible_at"`
}

func invoiceID(x *invoice) string { return x.ID }

// invoiceLine is an item of an invoice, as the invoice shows it.
type invoiceLine struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Type        string            `json:"type"`
	Item        string            `json:"invoice_item"`
	Amount      int64             `json:"amount"`
	Currency    string            `json:"currency"`
	Description string            `json:"description"`
	Quantity    int64             `json:"quantity"`
	Metadata    map[string]string `json:"metadata"`
	Livemode    bool              `json:"livemode"`
}

// maxLines is how many items an invoice takes.
const maxLines = 250

const shownLines = 10 // with the invoice itself

func (s *Server) createInvoice(c *call) *reply {
	p := c.params
	x := &invoice{ID: newID("in"), Object: "invoice", Status: "draft", Customer: p.Get("customer"), Currency: "usd", Collection: "charge_automatically", AutoAdvance: p.Get("auto_advance") == "true",
		Metadata: c.metadata(""), Description: p.Get("description"), Footer: p.Get("footer"), Created: unix(s.now()), Lines: []*invoiceLine{}, Days: c.number("days_until_due")}
	if p.Has("number") {
		number := p.Get("number")
		x.Number = &number
	}
	if p.Has("collection_method") {
		x.Collection = p.Get("collection_method")
	}
	switch {
	case find(s.mem.Customers, customerID, x.Customer) == nil:
		return missingParam("customer", x.Customer)
	case p.Has("currency") && p.Get("currency") != x.Currency:
		return invalid("currency", "This fake knows invoices in usd.")
	case x.Number != nil && slices.ContainsFunc(s.mem.Invoices, func(y *invoice) bool { return text(y.Number) == text(x.Number) }):
		return invalid("number", "An invoice with this number exists already.")
	case x.Collection == "send_invoice" && x.Days <= 0:
		return invalid("days_until_due", "If invoice collection method is 'send_invoice', you must set either 'due_date' or 'days_until_due'.")
	case x.Collection == "charge_automatically" && p.Has("days_until_due"):
		return invalid("days_until_due", "You can only set 'days_until_due' if collection method is 'send_invoice'.")
	case p.Has("pending_invoice_items_behavior") && p.Get("pending_invoice_items_behavior") != "exclude":
		return invalid("pending_invoice_items_behavior", "This fake has no pending items.")
	}
	s.mem.Invoices = append(s.mem.Invoices, x)
	s.emit("invoice.created", s.showInvoice(nil, x))
	return ok(s.showInvoice(c, x))
}

// showInvoice is an invoice with its first lines, and with its payment whole when that is wanted.
func (s *Server) showInvoice(c *call, x *invoice) any {
	out := struct {
		invoice
		Lines  any `json:"lines"`
		Intent any `json:"payment_intent"`
	}{invoice: *x, Intent: x.Intent}
	out.invoice.Lines = nil
	first := slices.Clone(x.Lines[:min(len(x.Lines), shownLines)])
	out.Lines = map[string]any{"object": "list", "data": first, "has_more": len(x.Lines) > shownLines, "total_count": len(x.Lines), "url": "/v1/invoices/" + x.ID + "/lines"}
	in := find(s.mem.Intents, intentID, text(x.Intent))
	if c == nil || in == nil || !c.wants("payment_intent") && !c.wants("payment_intent.latest_charge.balance_transaction") {
		return out
	}
	out.Intent = s.show(&call{expand: []string{"latest_charge.balance_transaction"}}, in)
	return out
}

func (s *Server) getInvoice(c *call) *reply {
	if x := find(s.mem.Invoices, invoiceID, c.id); x != nil {
		return ok(s.showInvoice(c, x))
	}
	return missing("invoice", c.id)
}

func (s *Server) listInvoices(c *call) *reply {
	customer, status := c.params.Get("customer"), c.params.Get("status")
	if customer != "" && find(s.mem.Customers, customerID, customer) == nil {
		return missingParam("customer", customer)
	}
	return page(c, s.mem.Invoices, invoiceID, func(x *invoice) int64 { return x.Created }, func(x *invoice) bool {
		return (customer == "" || x.Customer == customer) && (status == "" || x.Status == status)
	}, func(x *invoice) any { return s.showInvoice(c, x) })
}

func (s *Server) deleteInvoice(c *call) *reply {
	x := find(s.mem.Invoices, invoiceID, c.id)
	if x == nil {
		return missing("invoice", c.id)
	}
	if x.Status != "draft" {
		return invalid("id", "You can only delete draft invoices.")
	}
	s.mem.Invoices = slices.DeleteFunc(s.mem.Invoices, func(y *invoice) bool { return x == y })
	s.emit("invoice.deleted", s.showInvoice(nil, x))
	return ok(map[string]any{"id": x.ID, "object": "invoice", "deleted": true})
}

// listLines shows an invoice's lines in the order in which they were added.
func (s *Server) listLines(c *call) *reply {
	x := find(s.mem.Invoices, invoiceID, c.id)
	if x == nil {
		return missing("invoice", c.id)
	}
	backwards := slices.Clone(x.Lines)
	slices.Reverse(backwards) // page walks from the newest
	return page(c, backwards, func(l *invoiceLine) string { return l.ID }, func(*invoiceLine) int64 { return 0 }, nil, func(l *invoiceLine) any { return l })
}

func (s *Server) createItem(c *call) *reply {
	x := find(s.mem.Invoices, invoiceID, c.params.Get("invoice"))
	switch {
	case x == nil:
		return missingParam("invoice", c.params.Get("invoice"))
	case x.Customer != c.params.Get("customer"):
		return invalid("customer", "The invoice belongs to another customer.")
	case x.Status != "draft":
		return failure(http.StatusBadRequest, "invalid_request_error", "invoice_not_editable", "This invoice is no longer editable.")
	case len(x.Lines) >= maxLines:
		return invalid("invoice", "An invoice can have at most 250 invoice items.")
	case c.params.Get("currency") != x.Currency || !c.params.Has("amount"):
		return invalid("amount", "This fake knows items with an amount in usd.")
	}
	l := s.addLine(x, c.number("amount"), c.params.Get("description"), c.metadata(""))
	return ok(map[string]any{"id": l.Item, "object": "invoiceitem", "amount": l.Amount, "currency": l.Currency, "customer": x.Customer, "invoice": x.ID, "description": l.Description,
		"metadata": l.Metadata, "date": unix(s.now()), "livemode": false})
}

func (s *Server) addLine(x *invoice, cents int64, text string, metadata map[string]string) *invoiceLine {
	l := &invoiceLine{ID: newID("il"), Object: "line_item", Type: "invoiceitem", Item: newID("ii"), Amount: cents, Currency: x.Currency, Description: text, Quantity: 1, Metadata: metadata}
	x.Lines = append(x.Lines, l)
	x.Total += cents
	x.Subtotal, x.Due, x.Remaining = x.Total, x.Total, x.Total
	return l
}

// tellOverdue tells of invoices whose day has passed. The caller holds mu.
func (s *Server) tellOverdue() {
	now := unix(s.now())
	for _, x := range s.mem.Invoices {
		if x.Status == "open" && x.DueDate != nil && *x.DueDate <= now && !x.WasLate {
			x.WasLate = true
			s.emit("invoice.overdue", s.showInvoice(nil, x))
		}
	}
}

// AddLine adds an item as somebody would in the payment provider's own pages.
func (s *Server) AddLine(invoiceWanted string, cents int64, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := find(s.mem.Invoices, invoiceID, invoiceWanted)
	if x == nil || x.Status != "draft" {
		return fmt.Errorf("stripefake: %s is no draft", invoiceWanted)
	}
	s.addLine(x, cents, text, map[string]string{})
	s.save()
	return nil
}

// InvoiceView is an invoice as the payment provider has it, for tests.
type InvoiceView struct {
	ID, Status, Payment       string
	Total, Remaining          int64
	Lines                     []string // the descriptions
	Metadata                  map[string]string
	Sent, Attempts            int64
	OutOfBand                 bool
	Due                       time.Time // zero = at once
	Credited, CreditedOfMoney int64     // by credit notes before and after the payment
}

// Invoices are all invoices, oldest first.
func (s *Server) Invoices() []InvoiceView {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]InvoiceView, len(s.mem.Invoices))
	for i, x := range s.mem.Invoices {
		v := InvoiceView{ID: x.ID, Status: x.Status, Payment: text(x.Intent), Total: x.Total, Remaining: x.Remaining, Metadata: x.Metadata, Sent: x.Sent, Attempts: x.Attempts, OutOfBand: x.OutOfBand,
			Credited: x.Before, CreditedOfMoney: x.After}
		for _, l := range x.Lines {
			v.Lines = append(v.Lines, l.Description)
		}
		if x.DueDate != nil {
			v.Due = time.Unix(*x.DueDate, 0).UTC()
		}
		out[i] = v
	}
	return out
}
