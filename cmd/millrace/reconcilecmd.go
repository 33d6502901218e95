package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/billing/reconcile"
	"millrace/cmd/millrace/up"
	"millrace/db"
	"millrace/db/bus"
	"millrace/internal/clock"
)

// reconcileCmd proves that engines, events, ledger and budgets agree. Exit code 1: something is unexplained.
type reconcileCmd struct {
	databaseFlags
	Data      string `help:"Data folder of up, running or stopped; default: the one that up uses, unless there is a DATABASE_URL." placeholder:"DIR" env:"MILLRACE_DATA"`
	NatsURL   string `help:"With DATABASE_URL: where the usage log is, so that its end is waited for." placeholder:"nats://…" env:"NATS_URL"`
	NatsToken string `help:"Token for NATS." env:"NATS_TOKEN"`
	Rebuild   bool   `help:"First drop the ledger's projections (balances, sums of days, lots) and make them anew from its entries. Charging waits meanwhile."`
	JSON      bool   `name:"json" help:"Print the report as JSON."`
}

// noRater is how long is waited for the rater where none runs.
const noRater = time.Millisecond

// rebuildLimit bounds a rebuild: every entry is read three times.
const rebuildLimit = 2 * time.Hour

func (c *reconcileCmd) Run(ctx context.Context) error {
	cfg, closeAll, err := c.connect(ctx)
	if err != nil {
		return err
	}
	if c.Rebuild {
		if err := cfg.DB.InTx(ctx, db.System().Timeout(rebuildLimit), func(tx pgx.Tx) error { return ledger.Rebuild(ctx, tx) }); err != nil {
			return errors.Join(err, closeAll())
		}
	}
	report, err := reconcile.Run(ctx, cfg)
	if err := errors.Join(err, closeAll()); err != nil {
		return err
	}
	if c.JSON {
		err = json.NewEncoder(os.Stdout).Encode(report)
	} else {
		err = report.WriteText(os.Stdout)
	}
	if err == nil && report.Unexplained {
		err = exitCode(1)
	}
	return err
}

// connect reaches a serving installation's database and log, or a data folder's.
func (c *reconcileCmd) connect(ctx context.Context) (cfg reconcile.Config, closeAll func() error, err error) {
	cfg.Clock = clock.System
	if c.DatabaseURL == "" || c.Data != "" {
		stores, err := up.OpenStores(ctx, c.Data)
		if err != nil {
			return cfg, nil, err
		}
		cfg.DB, cfg.Bus = stores.DB, stores.Bus
		if !stores.Running {
			cfg.Wait, cfg.Settle = noRater, noRater
		}
		return cfg, stores.Close, nil
	}
	if cfg.DB, err = c.open(ctx); err != nil {
		return cfg, nil, err
	}
	if c.NatsURL == "" {
		return cfg, func() error { cfg.DB.Close(); return nil }, nil
	}
	if cfg.Bus, err = bus.Connect(ctx, bus.Config{URL: c.NatsURL, Token: c.NatsToken, Name: "millrace reconcile"}); err != nil {
		cfg.DB.Close()
		return cfg, nil, err
	}
	return cfg, func() error { cfg.Bus.Close(); cfg.DB.Close(); return nil }, nil
}
