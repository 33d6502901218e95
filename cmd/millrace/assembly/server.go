package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"millrace/agents/dial"
	"millrace/agents/hub"
	"millrace/api/agentapi"
	"millrace/billing/alert"
	"millrace/billing/credit"
	"millrace/billing/hook"
	"millrace/billing/inbox"
	"millrace/billing/invoice"
	"millrace/billing/margin"
	"millrace/billing/month"
	"millrace/billing/price"
	"millrace/billing/rate"
	"millrace/billing/report"
	"millrace/billing/stripegw"
	"millrace/billing/topup"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/serving/batch"
	"millrace/serving/catalogue"
	"millrace/serving/fleet"
	"millrace/serving/recipe/store"
	"millrace/serving/route"
	"millrace/tenants"
	"millrace/tenants/keys"
	webdomain "millrace/web/domain"
	"millrace/web/live"
)

// Server is a running process of Millrace. Its domain services are open to the wiring around it (up's demo data).
type Server struct {
	cfg     Config
	life    *life // everything but serving
	serving *life // listeners and gateway: what ends first
	metrics *prometheus.Registry

	Tenants   *tenants.Service
	Keys      *keys.Service
	Credit    *credit.Desk
	Hooks     *hook.Service
	Alerts    *alert.Teller
	Prices    *price.Service
	Report    *report.Service
	Margin    *margin.Service
	Months    *month.Service
	Invoices  *invoice.Service
	Collect   *invoice.Collector
	Topups    *topup.Service
	Inbox     *inbox.Inbox
	Catalogue *catalogue.Catalogue
	Recipes   *store.Recipes
	Fleet     *fleet.Service
	Router    *route.Router
	Hub       *hub.Hub // without the role hub it only listens to what other processes' hubs tell; nil for a gateway alone

	stripe  *stripegw.Gateway // nil = customers cannot pay by card
	gateway *gateway
	open    *live.Hub // browsers' event streams; nil without the control role
	public  *listener
	private *listener
}

// Start brings the schema up to date and starts the roles. When it fails, everything that was started has ended.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Server{cfg: c, life: newLife(), serving: newLife(), metrics: prometheus.NewRegistry()}
	s.serving.failed = s.life.failed // one place to hear of a failure
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := s.start(ctx); err != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), failedStartTimeout)
		defer cancel()
		return nil, errors.Join(err, s.Stop(ending))
	}
	return s, nil
}

const failedStartTimeout = 10 * time.Second

func (s *Server) start(ctx context.Context) error {
	c := s.cfg
	if err := c.DB.Migrate(ctx); err != nil {
		return err
	}
	if err := s.claim(ctx); err != nil {
		return err
	}
	s.Tenants = tenants.New(c.DB, c.Master, c.Clock, c.Bus, webdomain.LinkURL(c.PublicURL))
	s.Keys = keys.New(c.DB, c.Master, c.Clock, c.Bus)
	s.Credit = credit.NewDesk(c.DB, c.Clock, c.Bus)
	if err := s.openNews(); err != nil {
		return err
	}
	s.Prices = price.New(c.DB, c.Clock, c.Bus)
	s.Report = report.New(c.DB, c.Clock)
	s.Margin = margin.New(c.DB, c.Clock, s.Report)
	s.Prices.SetCosts(s.Margin)
	s.Months = month.New(c.DB, c.Clock)
	s.openInvoices()
	if err := s.openPayments(); err != nil {
		return err
	}
	var err error
	if s.Router, err = s.openRouter(); err != nil {
		return err
	}
	source := c.CA.GatewaySource(processName())
	hosts := dial.New(c.CA.Trust(), source, s.linked)
	s.takeDataLinks(hosts, source)
	s.Catalogue = catalogue.New(catalogue.Options{DB: c.DB, Bus: c.Bus, Sealer: c.Master, Clock: c.Clock, DialHost: hosts.Dial, Gone: s.Router.Forget})
	if err := s.Catalogue.Load(ctx); err != nil {
		return err
	}
	s.life.run("catalogue", s.Catalogue.Run)
	s.Recipes = &store.Recipes{DB: c.DB, Clock: c.Clock}
	s.Fleet = fleet.New(c.DB, c.Clock)
	if c.Roles.Worker {
		if err := s.startWorker(); err != nil {
			return err
		}
	}
	if c.Roles.Control {
		if err := s.Recipes.AddStarter(ctx); err != nil {
			return err
		}
	}
	if c.Roles.Hub || c.Roles.Control || c.Roles.Worker {
		s.startHub()
	}
	if c.Roles.Worker {
		s.startFleet()
	}
	if c.Roles.Gateway {
		if s.gateway, err = s.openGateway(ctx); err != nil {
			return err
		}
		if !c.Roles.Hub { // with a hub of its own, agents link while it already serves
			s.awaitFleet(ctx)
		}
	}
	s.metrics.MustRegister(gauges{s})
	return s.listen()
}

// claim makes the database this installation's, or refuses: a process with another master key or CA would lock out every
// key and every host.
func (s *Server) claim(ctx context.Context) error {
	mine := q.InstallationClaimParams{ID: ids.New(), KeyFingerprint: s.cfg.Master.Fingerprint(), CaFingerprint: s.cfg.CA.Fingerprint()}
	return s.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		if err := q.New(tx).InstallationClaim(ctx, mine); err != nil {
			return err
		}
		has, err := q.New(tx).Installation(ctx)
		switch {
		case err != nil:
			return err
		case has.KeyFingerprint != mine.KeyFingerprint:
			return errors.New("this database belongs to another master key: no API key or session in it would work. Start with the key it was made with")
		case has.CaFingerprint != mine.CaFingerprint:
			return errors.New("this database belongs to another CA: no host would be trusted. Start with the CA it was made with")
		}
		return nil
	})
}

func (s *Server) startWorker() error {
	rater, err := rate.New(rate.Config{DB: s.cfg.DB, Bus: s.cfg.Bus, Clock: s.cfg.Clock, Metrics: s.metrics})
	if err != nil {
		return err
	}
	s.life.run("rater", func(ctx context.Context) error { rater.Run(ctx); return nil })
	fencer, err := rate.NewFencer(rate.FencerConfig{DB: s.cfg.DB, Bus: s.cfg.Bus, Clock: s.cfg.Clock})
	if err != nil {
		return err
	}
	s.life.run("fence", func(ctx context.Context) error { fencer.Run(ctx); return nil })
	s.life.run("sweep of sign-ins", s.Tenants.RunSweeps)
	s.life.run("sweep of files", batch.New(s.cfg.DB, s.cfg.Clock, nil).RunSweeps)
	s.life.run("margin", s.Margin.Run)
	return s.startReconcile()
}

// startHub also serves a process that plays no hub: pages, control API and drains read the state of the fleet from it. No agent
// reaches that one, and it leaves the probing of attached units to the others.
func (s *Server) startHub() {
	c := hub.Config{DB: s.cfg.DB, Bus: s.cfg.Facts, CA: s.cfg.CA, Clock: s.cfg.Clock, Programs: s.cfg.AgentReleases}
	if s.cfg.Roles.Hub {
		c.Attached = s.attached
	}
	s.Hub = hub.New(c)
	s.life.run("hub", s.Hub.Run)
}

// attached lists the units that have no agent to tell how they are.
func (s *Server) attached() (out []*catalogue.Unit) {
	for _, m := range s.Catalogue.Models() {
		for _, u := range m.Units {
			if u.Attached {
				out = append(out, u)
			}
		}
	}
	return out
}

// listen opens the surfaces last: nothing is served before everything behind it works.
func (s *Server) listen() error {
	c := s.cfg
	if c.Metrics != nil {
		s.private = serve(s.life.ctx, "metrics", c.Metrics, internalPages(s.metrics, s.healthy), s.life.fail)
		s.life.onEnd("metrics listener", func(ctx context.Context) error { s.private.drain(ctx); return nil })
	}
	if c.Roles.Hub {
		s.life.run("agents' listener", func(ctx context.Context) error {
			return agentapi.Serve(ctx, c.Agents, s.Hub.Guard(c.CA.Trust().HubServer(c.CA.HubSource(c.HubNames...))), s.Hub.Handler(), slog.Default())
		})
	}
	if c.Public == nil {
		return nil
	}
	control, pages, err := s.surfaces()
	if err != nil {
		return err
	}
	var inference http.Handler
	if s.gateway != nil {
		inference = s.gateway.handler
	}
	s.public = serve(s.serving.ctx, "public", c.Public, split(inference, control, s.withHooks(pages)), s.life.fail)
	s.serving.onEnd("public listener", func(ctx context.Context) error {
		if s.open != nil {
			s.open.Close() // open pages would never end by themselves
		}
		if s.gateway != nil {
			s.gateway.batches.Rest() // what runs has as long to end as clients' requests have
		}
		s.public.drain(ctx)
		return nil
	})
	return nil
}

// healthy says why this process should get no traffic; nil = it may.
func (s *Server) healthy() error {
	if s.gateway == nil {
		return nil
	}
	if !s.gateway.purse.Valid() {
		return errors.New("the gateway's epoch is not valid: the database cannot be reached")
	}
	return s.gateway.log.Ready()
}

// Failed delivers the first failure of something that must not end.
func (s *Server) Failed() <-chan error { return s.life.failed }

// Drain ends serving: no new requests, running ones finish until ctx ends, then log and money. Agents stay linked, so that
// running requests can finish.
func (s *Server) Drain(ctx context.Context) error {
	if err := s.serving.end(ctx); err != nil {
		return fmt.Errorf("draining: %w", err)
	}
	return nil
}

// Stop drains, then ends everything else.
func (s *Server) Stop(ctx context.Context) error {
	drained := s.Drain(ctx)
	if err := s.life.end(ctx); err != nil {
		return errors.Join(drained, fmt.Errorf("stopping: %w", err))
	}
	return drained
}

// PublicURL is the address of console, control API and inference, as people reach it.
func (s *Server) PublicURL() string { return s.cfg.PublicURL }

// HubURL is the address that agents dial.
func (s *Server) HubURL() string { return s.cfg.HubURL }

// MetricsURL is the address of this process's metrics; "" without a listener.
func (s *Server) MetricsURL() string {
	if s.cfg.Metrics == nil {
		return ""
	}
	return "http://" + s.cfg.Metrics.Addr().String() + "/metrics"
}
