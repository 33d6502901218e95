package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"millrace/agents/hub"
	"millrace/agents/wire"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/engine/llamacpp"
	"millrace/tenants"
)

// demoModel is what an engine family serves in `up`.
type demoModel struct {
	catalogue.ModelInput
	upstream string
	spec     engine.Spec
}

// demoModels: the simulated model takes the longest prompts and answers that Millrace serves; Gemma's window is split
// over four slots.
func (u *instance) demoModel() (demoModel, error) {
	self, err := os.Executable()
	if err != nil {
		return demoModel{}, err
	}
	switch engine.Family(u.cfg.Engine) {
	case engine.Sim:
		return demoModel{ModelInput: catalogue.ModelInput{Name: "demo/sim-large", DisplayName: "Simulated model", Context: 1 << 20, MaxOutput: 256 << 10},
			upstream: "sim-large", spec: engine.Spec{Executable: self, Context: 1 << 20, Extra: u.cfg.EngineFlags}}, nil
	case engine.LlamaCpp:
		return demoModel{ModelInput: catalogue.ModelInput{Name: "google/gemma-3-270m", DisplayName: "Gemma 3 270M", Context: 2048, DefaultOutput: 512},
			upstream: "gemma-3-270m", spec: engine.Spec{Context: 2048, Slots: 4, DataDir: u.folder.Path("gemma"), Extra: u.cfg.EngineFlags}}, nil
	}
	return demoModel{}, fmt.Errorf("--engine %s: choose sim or llamacpp", u.cfg.Engine)
}

// startEngines places one engine per replica, each on a host of its own, and starts the hosts' agents.
func (u *instance) startEngines(ctx context.Context) ([]string, error) {
	m, err := u.demoModel()
	if err != nil {
		return nil, err
	}
	if m.spec.DataDir != "" {
		if err := llamacpp.Setup(ctx, m.spec.DataDir, func(p llamacpp.Progress) { u.say.report(p.Done, p.Total, p.Step) }); err != nil {
			return nil, err
		}
	}
	model, err := ensureModel(ctx, u.server, m.ModelInput)
	if err != nil {
		return nil, fmt.Errorf("demo model: %w", err)
	}
	u.say.step("starting %d agent(s) with their engines", u.cfg.Replicas)
	for i := range u.cfg.Replicas {
		host := fmt.Sprintf("local-%d", i+1)
		_, err := u.server.Hub.PlaceSimple(ctx, hub.Placement{Host: host, Name: m.upstream + "/" + host, Model: model, Engine: engine.Family(u.cfg.Engine),
			Upstream: m.upstream, Spec: m.spec}, tenants.System())
		if err != nil {
			return nil, fmt.Errorf("placing an engine: %w", err)
		}
		if err := u.startAgent(ctx, host); err != nil {
			return nil, err
		}
	}
	return []string{m.Name}, nil
}

// startAgent runs one agent as a child. Its token lets it join when it has no identity yet, or lost it.
func (u *instance) startAgent(ctx context.Context, host string) error {
	token, err := u.server.Hub.JoinToken(ctx, host, tenants.System())
	if err != nil {
		return err
	}
	data, err := u.folder.Dir("agents", host)
	if err != nil {
		return err
	}
	log, err := openLog(filepath.Join(u.folder.Path("logs"), host+".log"))
	if err != nil {
		return err
	}
	u.onEnd(log.Close)
	c := &child{name: host, log: log, env: []string{"MILLRACE_JOIN=" + token},
		args: []string{"agent", "--hub", u.server.HubURL(), "--data", data, "--data-listen", "127.0.0.1:0", "--parent-death", strconv.Itoa(os.Getpid()), "--drain", u.cfg.Drain.String()}}
	c.start()
	u.onEnd(func() error { c.stop(); return nil })
	return nil
}

// attach makes engines that someone already runs callable.
func (u *instance) attach(ctx context.Context, list []attachment) (models []string, err error) {
	for _, a := range list {
		a.ask(ctx)
		if _, err := ensureModel(ctx, u.server, catalogue.ModelInput{Name: a.name, Context: a.context}); err != nil {
			return nil, fmt.Errorf("--attach %s: %w", a.name, err)
		}
		if _, err := u.server.Catalogue.Attach(ctx, catalogue.AttachInput{Name: a.name, URL: a.url, Engine: string(a.engine), PublicModel: a.name,
			UpstreamModel: a.upstream, Key: a.key, Replace: true}, tenants.System()); err != nil {
			return nil, fmt.Errorf("--attach %s: %w", a.name, err)
		}
		u.say.step("attached %s: %s at %s", a.name, a.upstream, a.url)
		models = append(models, a.name)
	}
	return models, nil
}

const readyPoll = 20 * time.Millisecond

// waitReady waits until every replica has proved by a generation that it serves.
func (u *instance) waitReady(ctx context.Context, models []string) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		if err := u.server.Catalogue.Load(ctx); err != nil {
			return err
		}
		if waiting := u.waiting(models); waiting == "" {
			return nil
		} else if ctx.Err() != nil {
			return fmt.Errorf("%s did not become ready; its log is in %s", waiting, u.folder.Path("agents"))
		}
		select {
		case err := <-u.server.Failed():
			return err
		case <-u.postgres.Done():
			return errors.New("PostgreSQL ended")
		case <-ctx.Done():
		case <-time.After(readyPoll):
		}
	}
}

// waiting names a placed unit that is not ready yet.
func (u *instance) waiting(models []string) string {
	live := u.server.Hub.Live().Units
	for _, name := range models {
		m, ok := u.server.Catalogue.Model(name)
		if !ok || len(m.Units) == 0 {
			return name
		}
		ready := 0
		for _, unit := range m.Units {
			if unit.Attached || live[unit.ID].Load.State == wire.StateReady {
				ready++
			}
		}
		if ready < len(m.Units) {
			return name
		}
	}
	return ""
}

// welcome writes the ready file and tells a person where things are.
func (u *instance) welcome(ctx context.Context, d demo, models []string) error {
	by := tenants.System()
	admin, err := u.server.Tenants.CreateLink(ctx, by, operatorEmail, tenants.MaxLinkTTL)
	if err != nil {
		return err
	}
	customer, err := u.server.Tenants.CreateLink(ctx, by, customerEmail, tenants.MaxLinkTTL)
	if err != nil {
		return err
	}
	r := Ready{URL: u.server.PublicURL(), AdminLoginURL: admin.URL, CustomerLoginURL: customer.URL, AdminToken: d.AdminToken, APIKey: d.APIKey,
		Models: models, MetricsURL: u.server.MetricsURL(), PID: os.Getpid()}
	if u.cfg.ReadyFile != "" {
		if err := r.write(u.cfg.ReadyFile); err != nil {
			return err
		}
	}
	r.print(u.cfg.Out, d.fresh, engine.Family(u.cfg.Engine) == engine.Sim)
	return nil
}
