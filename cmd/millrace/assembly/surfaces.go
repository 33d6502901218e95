package assembly

import (
	"context"
	"log/slog"
	"net/http"

	"millrace/api/control"
	controldomain "millrace/api/control/domain"
	"millrace/billing/export"
	"millrace/billing/report"
	"millrace/web"
	webdomain "millrace/web/domain"
	"millrace/web/live"
)

// surfaces makes the control API and the pages.
func (s *Server) surfaces() (api, pages http.Handler, err error) {
	c := s.cfg
	if !c.Roles.Control {
		return nil, nil, nil
	}
	lag, err := report.ListenForLag(c.Bus, c.Clock)
	if err != nil {
		return nil, nil, err
	}
	s.life.onEnd("rater's lag", func(context.Context) error { lag.Close(); return nil })
	exports := export.New(c.DB, c.Clock)
	ports := controldomain.New(controldomain.Deps{DB: c.DB, Bus: c.Bus, Report: s.Report, Fleet: s.Hub, Lag: lag, Clock: c.Clock, Version: c.Version})
	api = control.New(control.Deps{Tenants: s.Tenants, Keys: s.Keys, Credit: s.Credit, Hooks: s.Hooks, Alerts: s.Alerts, Prices: s.Prices, Catalogue: s.Catalogue, Recipes: s.Recipes, Placement: s.Fleet,
		Fleet: ports.Fleet, Books: ports.Books, Exports: exports, Invoices: s.Invoices, Months: s.Months, System: ports.System, Clock: c.Clock})
	site := webdomain.New(webdomain.Deps{DB: c.DB, Tenants: s.Tenants, Keys: s.Keys, Credit: s.Credit, Hooks: s.Hooks, Alerts: s.Alerts, Prices: s.Prices, Report: s.Report, Exports: exports, Margin: s.Margin, Months: s.Months, Invoices: s.Invoices, Collect: s.Collect, Topups: s.Topups, Inbox: s.Inbox, Lag: lag,
		Catalogue: s.Catalogue, Fleet: s.Hub, Placement: s.Fleet, Recipes: s.Recipes, Clock: c.Clock, HubURL: c.HubURL, Mails: c.Mail != nil})
	s.open = live.NewHub()
	stop, err := webdomain.Nudge(c.Bus, c.Facts, s.open, c.Clock)
	if err != nil {
		return nil, nil, err
	}
	s.life.onEnd("page nudges", func(context.Context) error { stop(); return nil })
	pages = web.New(web.Deps{Auth: site.Auth, Customer: site.Customer, Change: site.Change, Hooks: site.Hooks, Pay: site.Pay, Bills: site.Bills, Business: site.Business, Operate: site.Operate, Till: site.Till, Invoices: site.Invoices, Prices: site.Prices, Capacity: site.Capacity,
		Live: s.open, Clock: c.Clock, Log: slog.Default(), Secure: c.Secure, PublicURL: c.PublicURL})
	return api, pages, nil
}
