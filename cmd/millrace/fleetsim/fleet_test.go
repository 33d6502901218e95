package fleetsim

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"millrace/api/control"
	"millrace/serving/fleet"
)

// raise starts a fleet, joins its hosts and places three kinds of units.
func raise(t *testing.T, z size) *sim {
	t.Helper()
	begun := time.Now()
	s := start(t)
	s.join(t, z)
	t.Logf("%d hosts joined, %v after the start", len(s.hosts), time.Since(begun).Round(time.Second))
	s.demand(t, whole, "simulated-gpu8", 3)
	s.demand(t, pair, "simulated-1p1d", 2)
	s.demand(t, racks, "simulated-racks", 1)
	if made := s.commit(t, "the first plan"); len(made.Units) != 6 || len(made.Moves) != 6 {
		t.Fatalf("%d units by %d moves: %+v", len(made.Units), len(made.Moves), made.Moves)
	}
	s.converge(t, "the first plan")
	s.footprint(t)
	return s
}

// footprint says what the processes take.
func (s *sim) footprint(t *testing.T) {
	var agents, engined, n int64
	for _, h := range s.hosts {
		mib, _ := memory(h.agent.PID)
		agents += mib
		for _, pid := range engines(h.dir) {
			mib, _ := memory(pid)
			engined, n = engined+mib, n+1
		}
	}
	control, _ := memory(s.control.PID)
	gateway, _ := memory(s.gateway.PID)
	t.Logf("memory beside the program's own pages: %d agents %d MiB, %d engines %d MiB, control %d MiB, gateway %d MiB", len(s.hosts), agents, n, engined, control, gateway)
}

// A fleet lives through the loss of a host, an agent, the control plane, a provider's network and everything.
func TestFleet(t *testing.T) {
	if os.Getenv("MILLRACE_SLOW") == "" {
		t.Skip("76 agents and 40 engines for minutes: run with MILLRACE_SLOW=1 (make test-slow)")
	}
	z := full
	if testing.Short() {
		z = small
	}
	s := raise(t, z)
	l := s.load(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a host is lost", s.loseHost},
		{"an agent is killed", s.loseAgent},
		{"the control plane is killed in a rollout", s.loseControl},
		{"a provider is cut off, below a mass loss", func(t *testing.T) { s.cutOff(t, 0, false) }},
		{"a provider is cut off, a mass loss", func(t *testing.T) { s.cutOff(t, providers-1, true) }},
		{"everything is restarted", func(t *testing.T) { s.restartAll(t, l) }},
	} {
		step.do(t)
		s.converge(t, step.name)
		l.judge(t, step.name)
	}
	l.rest()
	l.books(t)
	s.footprint(t)
}

// servingHost is a host with an engine of a model that serves.
func (s *sim) servingHost(t *testing.T, model string) *host {
	t.Helper()
	f, err := s.look(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range f.Units {
		if u.Model == model && u.State == fleet.Serving {
			return s.byName[u.Parts[0].Host]
		}
	}
	t.Fatalf("nothing of %s serves", model)
	return nil
}

func (s *sim) number(t *testing.T) int64 {
	t.Helper()
	f, err := s.look(t)
	if err != nil || f.Plan == nil {
		t.Fatalf("no plan: %v", err)
	}
	return f.Plan.Number
}

// repaired waits for a plan that the fleet made and committed by itself.
func (s *sim) repaired(t *testing.T, after int64) {
	t.Helper()
	within(t, convergeLimit, "the fleet repairs itself", func() string {
		f, err := s.look(t)
		if err != nil || f.Plan == nil || f.Plan.Number <= after || f.Plan.Cause != fleet.ByRepair {
			return fmt.Sprintf("plan %+v %v, frozen %q", f.Plan, err, f.Frozen)
		}
		return ""
	})
}

func (s *sim) loseHost(t *testing.T) {
	was := s.number(t)
	h := s.servingHost(t, whole)
	s.killHost(t, h)
	s.repaired(t, was)
	s.converge(t, h.name+" is replaced")
	s.restart(t, h)
}

func (s *sim) loseAgent(t *testing.T) {
	h := s.servingHost(t, whole)
	before := engines(h.dir)
	s.killAgent(t, h)
	s.restart(t, h)
	s.converge(t, h.name+"'s agent is back")
	for unit, pid := range engines(h.dir) {
		if before[unit] != pid {
			t.Errorf("%s: unit %s was process %d, is %d: it was not adopted", h.name, unit, before[unit], pid)
		}
	}
}

func (s *sim) loseControl(t *testing.T) {
	s.demand(t, whole, "simulated-gpu8", 4)
	made := s.commit(t, "one more")
	if err := s.control.Kill(); err != nil {
		t.Fatal(err)
	}
	s.startControl(t)
	s.converge(t, "the control plane is back")
	f, err := s.look(t)
	if err != nil || f.Plan.Number != made.Plan.Number || len(f.Units) != 7 {
		t.Errorf("plan %+v with %d units (%v), want %d with 7", f.Plan, len(f.Units), err, made.Plan.Number)
	}
}

// cutOff takes a provider's network away for as long as its hosts take to be lost.
func (s *sim) cutOff(t *testing.T, provider int, mass bool) {
	was, placed := s.number(t), s.uses(t, provider)
	if err := s.net.cut(provider); err != nil {
		t.Fatal(err)
	}
	switch {
	case mass:
		within(t, convergeLimit, "the fleet is frozen", func() string {
			f, err := s.look(t)
			if err != nil || f.Frozen == "" {
				return fmt.Sprintf("not frozen (%v)", err)
			}
			return ""
		})
		if now := s.number(t); now != was {
			t.Errorf("plan %d was made in a mass loss", now)
		}
	case placed:
		s.repaired(t, was)
	default:
		t.Logf("nothing is placed at provider %d", provider+1)
	}
	begun := time.Now()
	if err := s.net.heal(provider); err != nil {
		t.Fatal(err)
	}
	s.heard(t, s.hosts, begun)
	if mass {
		s.converge(t, "most hosts are back")
		if now := s.number(t); now != was {
			t.Errorf("plan %d was made while hosts came back from a mass loss", now)
		}
	}
}

// uses reports whether something is placed at a provider.
func (s *sim) uses(t *testing.T, provider int) bool {
	t.Helper()
	f, err := s.look(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range f.Units {
		for _, p := range u.Parts {
			if s.byName[p.Host].provider == provider {
				return true
			}
		}
	}
	return false
}

// restartAll ends clients, gateway, hosts and control plane in order, machines with their engines, and starts them again.
func (s *sim) restartAll(t *testing.T, l *load) {
	was := s.places(t)
	l.rest()
	stopProcess(t, "gateway", s.gateway.Process)
	each(t, s.hosts, func(h *host) error {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		_, err := h.agent.Stop(ctx)
		killEngines(h.dir)
		return err
	})
	stopProcess(t, "control", s.control)
	begun := time.Now()
	s.startControl(t)
	each(t, s.hosts, s.startAgent)
	s.startGateway(t)
	s.heard(t, s.hosts, begun)
	s.converge(t, "everything is back")
	if now := s.places(t); fmt.Sprint(now) != fmt.Sprint(was) {
		t.Errorf("the plan was %v, is %v", was, now)
	}
	l.begin(t)
}

func (s *sim) places(t *testing.T) []string {
	t.Helper()
	f, err := s.look(t)
	if err != nil {
		t.Fatal(err)
	}
	var plan control.PlanDetail
	if err := s.get("/plans/"+f.Plan.ID, &plan); err != nil {
		t.Fatal(err)
	}
	return places(&plan)
}
