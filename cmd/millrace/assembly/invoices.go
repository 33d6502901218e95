package assembly

import (
	"millrace/billing/invoice"
)

// openInvoices makes what bills organizations for what their credit did not cover, and runs it where the worker is.
func (s *Server) openInvoices() {
	c := s.cfg
	s.Invoices = invoice.New(invoice.Config{DB: c.DB, Bus: c.Bus, Clock: c.Clock, Notify: c.Bus, Desk: s.Credit, Seller: c.Seller, Due: c.InvoiceDue, PublicURL: c.PublicURL})
	if c.Roles.Worker {
		s.life.run("invoices", s.Invoices.Run)
	}
}
