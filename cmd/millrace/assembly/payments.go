package assembly

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"millrace/api/hooks"
	"millrace/billing/inbox"
	"millrace/billing/invoice"
	"millrace/billing/stripegw"
	"millrace/billing/topup"
)

// Payments say how customers pay by card.
type Payments struct {
	Stripe stripegw.Config
	// TestPages are the pages of a payment provider that is not real, served under TestPagesPath; nil = it is real.
	TestPages http.Handler
}

// TestPagesPath is where the pages of a payment provider that is not real are.
const TestPagesPath = "/test-payments"

// openPayments joins top-ups and invoices with the payment provider; without one customers cannot pay by card, and every page
// says so.
func (s *Server) openPayments() error {
	c := topup.Config{DB: s.cfg.DB, Clock: s.cfg.Clock, Notify: s.cfg.Bus, PublicURL: s.cfg.PublicURL}
	if p := s.cfg.Payments; p != nil {
		var err error
		if s.stripe, err = stripegw.New(p.Stripe); err != nil {
			return fmt.Errorf("payments by card: %w", err)
		}
		c.Gateway = s.stripe
	}
	s.Topups = topup.New(c)
	collect := invoice.CollectConfig{Customers: s.Topups, PublicURL: s.cfg.PublicURL}
	if s.stripe != nil {
		collect.Till = s.stripe.Till()
	}
	s.Collect = invoice.NewCollector(s.Invoices, collect)
	s.Inbox = inbox.New(s.cfg.DB, s.cfg.Clock, inbox.Dispatch(s.Topups, s.Collect))
	if !s.cfg.Roles.Worker {
		return nil
	}
	s.life.run("collecting invoices", s.Collect.Run) // reminders need no payment provider
	if !s.Topups.On() {
		return nil
	}
	s.life.run("payment events", s.Inbox.Run)
	s.life.run("top-ups", func(ctx context.Context) error { return s.Topups.Run(ctx, s.Inbox) })
	return nil
}

// withHooks serves beside the pages what the payment provider calls, and its pages when it is not real.
func (s *Server) withHooks(pages http.Handler) http.Handler {
	if pages == nil {
		return nil
	}
	var parser hooks.Parser
	if s.stripe != nil {
		parser = s.stripe
	}
	events := hooks.Handler(parser, s.Inbox)
	var test http.Handler
	if p := s.cfg.Payments; p != nil && p.TestPages != nil {
		test = http.StripPrefix(TestPagesPath, p.TestPages)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/hooks/"):
			events.ServeHTTP(w, r)
		case test != nil && strings.HasPrefix(r.URL.Path, TestPagesPath+"/"):
			test.ServeHTTP(w, r)
		default:
			pages.ServeHTTP(w, r)
		}
	})
}
