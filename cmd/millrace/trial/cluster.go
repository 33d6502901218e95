package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"millrace/agents/wire"
	"millrace/cmd/millrace/assembly"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/pg"
	"millrace/internal/clock"
	"millrace/internal/pki"
	"millrace/internal/seal"
)

// ClusterConfig is an installation of several processes on this machine.
type ClusterConfig struct {
	Binary  string
	Dir     string    // everything is kept here
	Log     io.Writer // what the processes say; nil = only the ends are kept
	Engines int       // simulated ones, each with an agent of its own
	// EngineArgs are further flags of the engines.
	EngineArgs []string
	// Roles are what this process plays; none = control, hub and worker.
	Roles assembly.Roles
	// InitSQL is what the superuser runs when the database is made.
	InitSQL []string
}

// Cluster is PostgreSQL, a NATS server that listens, and every role but the gateway's, run inside this process; agents with
// their engines, and gateways, are processes of their own.
type Cluster struct {
	Server *assembly.Server
	DB     *db.DB
	Bus    *bus.Bus
	Shop   Shop

	cfg         ClusterConfig
	databaseURL string
	nats        *bus.Server
	gateways    atomic.Int64 // started so far
	agents      []*Process
	ends        []func(ctx context.Context) error // newest last
}

// natsToken is the token of a server that lives as long as a trial and listens on loopback.
const natsToken = "trial"

// StartCluster starts everything but the gateways and waits until the engines serve.
func StartCluster(ctx context.Context, c ClusterConfig) (*Cluster, error) {
	k := &Cluster{cfg: c}
	if err := k.start(ctx); err != nil {
		return nil, errors.Join(err, k.Stop(context.WithoutCancel(ctx)))
	}
	return k, nil
}

// DatabaseURL is where the owner of the database reaches it.
func (k *Cluster) DatabaseURL() string { return k.databaseURL }

func (k *Cluster) onEnd(fn func(ctx context.Context) error) { k.ends = append(k.ends, fn) }

// Stop ends everything, newest first. Gateways are the caller's.
func (k *Cluster) Stop(ctx context.Context) error {
	var errs []error
	for i := len(k.ends) - 1; i >= 0; i-- {
		errs = append(errs, k.ends[i](ctx))
	}
	k.ends = nil
	return errors.Join(errs...)
}

func (k *Cluster) start(ctx context.Context) error {
	if err := k.startStores(ctx); err != nil {
		return err
	}
	if err := k.startServer(ctx); err != nil {
		return err
	}
	var err error
	if k.Shop, err = openShop(ctx, k.Server); err != nil {
		return err
	}
	for i := range k.cfg.Engines {
		if err := k.startAgent(ctx, fmt.Sprintf("host-%d", i+1)); err != nil {
			return err
		}
	}
	return k.awaitEngines(ctx)
}

func (k *Cluster) startStores(ctx context.Context) error {
	postgres, err := pg.Start(ctx, pg.Config{Dir: filepath.Join(k.cfg.Dir, "postgres"), Log: k.cfg.Log, InitSQL: k.cfg.InitSQL})
	if err != nil {
		return err
	}
	k.onEnd(postgres.Stop)
	k.databaseURL = postgres.URL()
	if k.DB, err = db.Open(ctx, k.databaseURL, db.Options{}); err != nil {
		return err
	}
	k.onEnd(func(context.Context) error { k.DB.Close(); return nil })
	k.nats, err = bus.StartEmbedded(ctx, bus.EmbeddedConfig{Dir: filepath.Join(k.cfg.Dir, "nats"), SyncAlways: true, Listen: "127.0.0.1:0", Token: natsToken})
	if err != nil {
		return err
	}
	k.onEnd(func(context.Context) error { k.nats.Stop(); return nil })
	k.Bus, err = k.connect(ctx)
	return err
}

func (k *Cluster) connect(ctx context.Context) (*bus.Bus, error) {
	b, err := bus.Connect(ctx, bus.Config{Server: k.nats, Name: "trial"})
	if err != nil {
		return nil, err
	}
	k.onEnd(func(context.Context) error { b.Close(); return nil })
	return b, nil
}

// startServer plays control, hub and worker in this process.
func (k *Cluster) startServer(ctx context.Context) error {
	key := seal.Generate()
	master, err := seal.Parse(key)
	if err != nil {
		return err
	}
	ca, caKey, err := pki.NewCA(clock.System)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"master.key": []byte(key), "ca.pem": ca.CertPEM(), "ca.key": caKey} {
		if err := os.WriteFile(filepath.Join(k.cfg.Dir, name), text, 0o600); err != nil {
			return err
		}
	}
	facts, err := k.connect(ctx)
	if err != nil {
		return err
	}
	public, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	agents, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, public.Close())
	}
	roles := k.cfg.Roles
	if roles == (assembly.Roles{}) {
		roles = assembly.Roles{Control: true, Hub: true, Worker: true}
	}
	k.Server, err = assembly.Start(ctx, assembly.Config{Roles: roles, Version: "trial",
		DB: k.DB, Bus: k.Bus, Facts: facts, Master: master, CA: ca, Public: public, Agents: agents, PublicURL: "http://" + public.Addr().String(),
		HubURL: "https://" + agents.Addr().String(), HubNames: []string{"127.0.0.1"}})
	if err != nil {
		return errors.Join(err, public.Close(), agents.Close())
	}
	k.onEnd(k.Server.Stop)
	return nil
}

// awaitEngines waits until every engine has proved that it serves.
func (k *Cluster) awaitEngines(ctx context.Context) error {
	for {
		ready := 0
		for _, unit := range k.Server.Hub.Live().Units {
			if unit.Load.State == wire.StateReady {
				ready++
			}
		}
		if ready >= k.cfg.Engines {
			return nil
		}
		select {
		case <-ctx.Done():
			said, _ := json.Marshal(k.Server.Hub.Live()) // for a person
			return fmt.Errorf("%d of %d engines are ready: %w: %s", ready, k.cfg.Engines, ctx.Err(), said)
		case <-time.After(readyPoll):
		}
	}
}
