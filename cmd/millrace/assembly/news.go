package assembly

import (
	"context"
	"time"

	"millrace/billing/alert"
	"millrace/billing/hook"
	"millrace/billing/report"
	"millrace/tenants/mailer"
)

// openNews makes what tells people and programs of the money path, and runs it where the worker is: alerts, webhooks, mail,
// and what ends by the clock.
func (s *Server) openNews() error {
	c := s.cfg
	s.Credit.ApproveAbove(c.ApprovalAbove)
	s.Hooks = hook.New(c.DB, c.Master, c.Clock, c.LoopbackHooks)
	s.Alerts = alert.New(c.DB, c.Clock, c.PublicURL)
	if !c.Roles.Worker {
		return nil
	}
	lag, err := report.ListenForLag(c.Bus, c.Clock)
	if err != nil {
		return err
	}
	s.life.onEnd("rater's lag, for ending credit", func(context.Context) error { lag.Close(); return nil })
	rated := func() (time.Time, bool) {
		behind, known := lag.Now()
		return c.Clock.Now().Add(-behind), known
	}
	s.life.run("credit that ends", func(ctx context.Context) error { return s.Credit.Run(ctx, rated) })
	s.life.run("alerts", s.Alerts.Run)
	s.life.run("webhooks", s.Hooks.Run)
	if c.Mail == nil {
		return nil
	}
	mail, err := mailer.New(c.DB, c.Clock, *c.Mail)
	if err != nil {
		return err
	}
	s.life.run("mail", mail.Run)
	return nil
}
