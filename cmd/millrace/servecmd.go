package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"millrace/agents/host/agentcmd"
	"millrace/agents/release"
	"millrace/cmd/millrace/assembly"
	"millrace/db"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/datafolder"
	"millrace/internal/money"
	"millrace/internal/pki"
	"millrace/internal/seal"
	"millrace/serving/fleet"
)

// databaseFlags is how a command reaches the database.
type databaseFlags struct {
	DatabaseURL string `help:"PostgreSQL 15 or newer; the login role owns the database and is no superuser." placeholder:"postgres://…" env:"DATABASE_URL"`
}

func (f databaseFlags) open(ctx context.Context) (*db.DB, error) {
	if f.DatabaseURL == "" {
		return nil, errors.New("no database: set DATABASE_URL")
	}
	return db.Open(ctx, f.DatabaseURL, db.Options{})
}

// masterFlags is how a command gets the master key.
type masterFlags struct {
	MasterKey     string `help:"Master key (see millrace master-key)." env:"MILLRACE_MASTER_KEY" hidden:""`
	MasterKeyFile string `help:"File with the master key." type:"path" env:"MILLRACE_MASTER_KEY_FILE"`
}

func (f masterFlags) master() (*seal.Master, error) {
	text := f.MasterKey
	if text == "" && f.MasterKeyFile != "" {
		b, err := os.ReadFile(f.MasterKeyFile)
		if err != nil {
			return nil, fmt.Errorf("master key: %w", err)
		}
		text = string(b)
	}
	if text == "" {
		return nil, errors.New("no master key: set MILLRACE_MASTER_KEY_FILE or MILLRACE_MASTER_KEY (make one with: millrace master-key)")
	}
	return seal.Parse(text)
}

type serveCmd struct {
	databaseFlags
	masterFlags
	Roles          string `help:"Roles of this process: all, or a list of gateway, control, hub, worker." default:"all" env:"MILLRACE_ROLES"`
	NatsURL        string `help:"NATS with JetStream. Without it this process runs its own, and no second one may use the database." placeholder:"nats://…" env:"NATS_URL"`
	NatsToken      string `help:"Token for NATS." env:"NATS_TOKEN"`
	Data           string `help:"Folder for lock files and, without NATS_URL, the usage log." default:"/var/lib/millrace" env:"MILLRACE_DATA"`
	Listen         string `help:"Address of console, control API and inference." default:"127.0.0.1:8080" env:"MILLRACE_LISTEN"`
	PublicURL      string `help:"The same as people reach it, behind a balancer." placeholder:"https://…" env:"MILLRACE_PUBLIC_URL"`
	AgentListen    string `help:"Address that agents dial (TLS)." default:"127.0.0.1:8443" env:"MILLRACE_AGENT_LISTEN"`
	HubURL         string `help:"The same as agents reach it." placeholder:"https://…" env:"MILLRACE_HUB_URL"`
	DataLinkListen string `help:"Address where hosts that nobody can dial dial this gateway (TLS), each process its own; empty = they are reached by the hub in the same process." placeholder:"IP:PORT" env:"MILLRACE_DATA_LINK_LISTEN"`
	DataLinkURL    string `help:"The same as agents reach it." placeholder:"https://…" env:"MILLRACE_DATA_LINK_URL"`
	AgentReleases  string `help:"Folder of agents' programs by release channel (millrace agent-release)." placeholder:"DIR" env:"MILLRACE_AGENT_RELEASES"`
	MetricsListen  string `help:"Address of metrics and profiles; keep it private." default:"127.0.0.1:9090" env:"MILLRACE_METRICS_LISTEN"`
	CACert         string `name:"ca-cert" help:"File with the CA's certificate." type:"path" env:"MILLRACE_CA_CERT"`
	CAKey          string `name:"ca-key" help:"File with the CA's key." type:"path" env:"MILLRACE_CA_KEY"`
	mailFlags
	stripeFlags
	sellerFlags
	LoopbackWebhooks bool                     `help:"Customers' webhooks may lead to this machine and use http: for development only." env:"MILLRACE_LOOPBACK_WEBHOOKS"`
	ApprovalAboveUSD string                   `name:"approval-above-usd" help:"What an operator gives or takes above this sum waits for a second operator." default:"1000" env:"MILLRACE_APPROVAL_ABOVE_USD"`
	HostedTools      string                   `help:"What becomes of tools in the Responses API that only OpenAI's servers run (web_search, mcp, …): drop, with a warning, or refuse." enum:"drop,refuse" default:"drop" env:"MILLRACE_HOSTED_TOOLS"`
	FleetTimes       map[string]time.Duration `help:"Other times of the fleet, for trials: lost=9s;repair=10s." hidden:""`
	ReadyFile        string                   `help:"Written once everything serves." placeholder:"FILE" hidden:""`
	Validity         time.Duration            `help:"How long a gateway may admit without hearing from the database." default:"5m"`
	Drain            time.Duration            `help:"How long running requests may go on when told to stop." default:"60s"`
}

// Run plays the roles until a signal or a failure.
func (c *serveCmd) Run(ctx context.Context) error {
	tuneRuntime()
	roles, err := assembly.ParseRoles(c.Roles)
	if err != nil {
		return err
	}
	cfg := assembly.Config{Roles: roles, Version: version, PublicURL: c.PublicURL, HubURL: c.HubURL, Validity: c.Validity, LoopbackHooks: c.LoopbackWebhooks, RefuseHosted: c.HostedTools == "refuse"}
	if c.AgentReleases != "" {
		cfg.AgentReleases = release.Open(c.AgentReleases)
	}
	if cfg.Mail, err = c.mailServer(); err != nil {
		return err
	}
	if cfg.Payments, err = c.payments(); err != nil {
		return err
	}
	if cfg.Seller, err = c.seller(); err != nil {
		return err
	}
	cfg.InvoiceDue = c.InvoiceDue
	if cfg.FleetLimits, err = fleet.DefaultLimits.With(c.FleetTimes); err != nil {
		return fmt.Errorf("--fleet-times: %w", err)
	}
	if cfg.ApprovalAbove, err = money.ParseUSD(c.ApprovalAboveUSD); err != nil || cfg.ApprovalAbove <= 0 {
		return fmt.Errorf("--approval-above-usd: %q is no sum above 0", c.ApprovalAboveUSD)
	}
	if cfg.Master, err = c.master(); err != nil {
		return err
	}
	if cfg.CA, err = c.authority(); err != nil {
		return err
	}
	if cfg.DB, err = c.open(ctx); err != nil {
		return err
	}
	defer cfg.DB.Close()
	closeBus, err := c.connect(ctx, &cfg)
	if err != nil {
		return err
	}
	defer closeBus()
	if err := c.listen(&cfg); err != nil {
		return err
	}
	server, err := assembly.Start(ctx, cfg)
	if err != nil {
		return err
	}
	if c.ReadyFile != "" {
		if err := os.WriteFile(c.ReadyFile, []byte(cfg.PublicURL+"\n"), 0o600); err != nil {
			return errors.Join(err, stopServer(server, c.Drain))
		}
	}
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-server.Failed():
	}
	return errors.Join(failure, stopServer(server, c.Drain))
}

func stopServer(s *assembly.Server, drain time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	return s.Stop(ctx)
}

// connect joins the bus: the named one, or one of this process's own, which then must be the database's only process.
func (c *serveCmd) connect(ctx context.Context, cfg *assembly.Config) (closeAll func(), err error) {
	var ends []func()
	end := func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	release, err := cfg.DB.Presence(ctx, c.NatsURL == "")
	if err != nil {
		return nil, err
	}
	ends = append(ends, release)
	var own *bus.Server
	if c.NatsURL == "" {
		dir := filepath.Join(c.Data, "nats")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if own, err = bus.StartEmbedded(ctx, bus.EmbeddedConfig{Dir: dir, SyncAlways: true}); err != nil {
			return nil, err
		}
		ends = append(ends, own.Stop)
		cfg.DiskFree = assembly.DiskFree(dir)
	}
	for name, b := range map[string]**bus.Bus{"millrace log and notices": &cfg.Bus, "millrace fleet facts": &cfg.Facts} {
		if *b, err = bus.Connect(ctx, bus.Config{Server: own, URL: c.NatsURL, Token: c.NatsToken, Name: name}); err != nil {
			return nil, err
		}
		ends = append(ends, (*b).Close)
	}
	return end, nil
}

// listen takes the addresses that the roles need.
func (c *serveCmd) listen(cfg *assembly.Config) (err error) {
	take := func(address string) net.Listener {
		if err != nil || address == "" {
			return nil
		}
		var l net.Listener
		if l, err = net.Listen("tcp", address); err != nil {
			err = fmt.Errorf("cannot listen on %s: %w", address, err)
		}
		return l
	}
	if cfg.Roles.Gateway || cfg.Roles.Control {
		cfg.Public = take(c.Listen)
	}
	if cfg.Roles.Hub {
		cfg.Agents = take(c.AgentListen)
	}
	if cfg.Roles.Gateway {
		cfg.DataLinks = take(c.DataLinkListen)
	}
	cfg.Metrics = take(c.MetricsListen)
	if err != nil {
		return err
	}
	if cfg.PublicURL == "" && cfg.Public != nil {
		cfg.PublicURL = "http://" + cfg.Public.Addr().String()
	}
	if cfg.HubURL == "" && cfg.Agents != nil {
		cfg.HubURL = "https://" + cfg.Agents.Addr().String()
	}
	if cfg.DataLinksURL = c.DataLinkURL; cfg.DataLinksURL == "" && cfg.DataLinks != nil {
		cfg.DataLinksURL = "https://" + cfg.DataLinks.Addr().String()
	}
	if u, err := url.Parse(cfg.DataLinksURL); cfg.DataLinks != nil && (err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "") {
		return fmt.Errorf("--data-link-url %q: want https://HOST:PORT", cfg.DataLinksURL)
	}
	cfg.Secure = strings.HasPrefix(cfg.PublicURL, "https://")
	if u, parseErr := url.Parse(cfg.HubURL); parseErr == nil && u.Hostname() != "" {
		cfg.HubNames = []string{u.Hostname()}
	}
	cfg.LockDir = filepath.Join(c.Data, "locks")
	return os.MkdirAll(cfg.LockDir, 0o700)
}

func (c *serveCmd) authority() (*pki.CA, error) {
	if c.CACert == "" || c.CAKey == "" {
		return nil, errors.New("no CA: set MILLRACE_CA_CERT and MILLRACE_CA_KEY (make one with: millrace ca --out DIR)")
	}
	cert, err := os.ReadFile(c.CACert)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	key, err := os.ReadFile(c.CAKey)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	return pki.LoadCA(cert, key, clock.System)
}

// caCmd makes the installation's CA for `serve`.
type caCmd struct {
	Out string `help:"Folder for ca.pem and ca.key." required:"" type:"path"`
}

func (c *caCmd) Run() error {
	keyFile := filepath.Join(c.Out, "ca.key")
	if _, err := os.Stat(keyFile); err == nil {
		return fmt.Errorf("%s exists: a new CA would lock out every host of the old one", keyFile)
	}
	ca, key, err := pki.NewCA(clock.System)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o700); err != nil {
		return err
	}
	if err := datafolder.WriteFile(filepath.Join(c.Out, "ca.pem"), ca.CertPEM(), 0o644); err != nil {
		return err
	}
	return datafolder.WriteFile(keyFile, key, 0o600)
}

type migrateCmd struct{ databaseFlags }

func (c *migrateCmd) Run(ctx context.Context) error {
	d, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Migrate(ctx)
}

type agentCmd struct{ agentcmd.Command }

func (c *agentCmd) Run(ctx context.Context) error {
	c.Version = version
	return c.Command.Run(ctx)
}
