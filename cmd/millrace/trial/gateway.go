package trial

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"millrace/agents/hub"
	"millrace/serving/engine"
	"millrace/tenants"
)

// startAgent places an engine on a host and starts the host's agent.
func (k *Cluster) startAgent(ctx context.Context, host string) error {
	_, err := k.Server.Hub.PlaceSimple(ctx, hub.Placement{Host: host, Name: "sim/" + host, Model: k.Shop.Model, Engine: engine.Sim, Upstream: "sim",
		Spec: engine.Spec{Executable: k.cfg.Binary, Context: shopContext, Extra: k.cfg.EngineArgs}}, tenants.System())
	if err != nil {
		return err
	}
	token, err := k.Server.Hub.JoinToken(ctx, host, tenants.System())
	if err != nil {
		return err
	}
	data := filepath.Join(k.cfg.Dir, "agents", host)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	p, err := StartProcess(k.cfg.Binary, []string{"agent", "--hub", k.Server.HubURL(), "--data", data, "--data-listen", "127.0.0.1:0",
		"--parent-death", strconv.Itoa(os.Getpid()), "--drain", "1s"}, []string{"MILLRACE_JOIN=" + token}, k.cfg.Log)
	if err != nil {
		return err
	}
	k.agents = append(k.agents, p)
	k.onEnd(func(ctx context.Context) error { _, err := p.Stop(ctx); return err })
	return nil
}

// Gateway is a gateway process.
type Gateway struct {
	*Process
	URL string
}

// LaunchGateway starts a gateway process and does not wait: AwaitReady does.
func (k *Cluster) LaunchGateway(args ...string) (*Gateway, string, error) {
	ready := filepath.Join(k.cfg.Dir, fmt.Sprintf("gateway-%d.ready", k.gateways.Add(1)))
	at := func(name string) string { return filepath.Join(k.cfg.Dir, name) }
	args = append([]string{"serve", "--roles", "gateway", "--nats-url", k.nats.URL(), "--nats-token", natsToken, "--data", k.cfg.Dir,
		"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--master-key-file", at("master.key"), "--ca-cert", at("ca.pem"), "--ca-key", at("ca.key"),
		"--ready-file", ready}, args...)
	p, err := StartProcess(k.cfg.Binary, args, []string{"DATABASE_URL=" + k.databaseURL}, k.cfg.Log)
	if err != nil {
		return nil, "", err
	}
	return &Gateway{Process: p}, ready, nil
}

// AwaitReady waits until the gateway serves, and removes the file that said so.
func (g *Gateway) AwaitReady(ctx context.Context, readyFile string) error {
	b, err := awaitFile(ctx, g.Process, readyFile)
	if err != nil {
		return err
	}
	g.URL = strings.TrimSpace(string(b))
	return os.Remove(readyFile)
}

// StartGateway starts a gateway process and waits until it serves.
func (k *Cluster) StartGateway(ctx context.Context, args ...string) (*Gateway, error) {
	g, ready, err := k.LaunchGateway(args...)
	if err != nil {
		return nil, err
	}
	return g, g.AwaitReady(ctx, ready)
}
