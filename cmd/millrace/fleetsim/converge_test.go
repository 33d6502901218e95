package fleetsim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/api/control"
	"millrace/cmd/millrace/trial"
	"millrace/serving/fleet"
)

// look reads the fleet. A GPU that two engines have is a failure, whenever it is seen.
func (s *sim) look(t *testing.T) (control.FleetState, error) {
	t.Helper()
	var f control.FleetState
	if err := s.get("/fleet", &f); err != nil {
		return f, err
	}
	held := map[string]string{}
	for _, u := range f.Units {
		for _, p := range u.Parts {
			for _, g := range p.GPUs {
				at := fmt.Sprintf("%s gpu %d", p.Host, g)
				if p.State == fleet.Planned || p.State == fleet.Stopped {
					continue // not given to it
				}
				if was, twice := held[at]; twice {
					t.Fatalf("%s is %s's and %s's (%s)", at, was, u.Name, p.State)
				}
				held[at] = u.Name
			}
		}
	}
	return f, nil
}

// wrong says in what the fleet is not what is planned; "" = it is.
func (s *sim) wrong(t *testing.T) string {
	t.Helper()
	f, err := s.look(t)
	switch {
	case err != nil:
		return err.Error()
	case f.Frozen != "":
		return "frozen: " + f.Frozen
	case f.Plan == nil:
		return "no plan"
	}
	var plan control.PlanDetail
	if err := s.get("/plans/"+f.Plan.ID, &plan); err != nil {
		return err.Error()
	}
	if len(plan.Unmet) > 0 {
		return fmt.Sprintf("plan %d: %+v", f.Plan.Number, plan.Unmet)
	}
	want, has, why := places(&plan), []string{}, ""
	parts := map[string][]string{} // unit ids by host
	for _, u := range f.Units {
		if u.State != fleet.Serving || u.Leaving != "" {
			why = fmt.Sprintf("%s is %s (%s%s)", u.Name, u.State, u.Text, u.Leaving)
		}
		for _, p := range u.Parts {
			if p.State != fleet.Serving || p.Observed != wire.StateReady {
				why = fmt.Sprintf("%s, %s on %s is %s, observed %s (%s %s %s)", u.Name, p.Role, p.Host, p.State, p.Observed, p.Text, p.Message, p.Trouble)
			}
			has = append(has, place(u.ID, p.Role, p.Replica, p.Host, p.GPUs))
			parts[p.Host] = append(parts[p.Host], p.ID)
		}
	}
	slices.Sort(has)
	if why == "" && !slices.Equal(want, has) {
		why = fmt.Sprintf("planned and not there: %v; there and not planned: %v", without(want, has), without(has, want))
	}
	if why != "" {
		return why
	}
	return s.strange(parts)
}

func without(list, of []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(p string) bool { return slices.Contains(of, p) })
}

func place(unit, role string, replica int, host string, gpus []int) string {
	return fmt.Sprintf("%s/%s/%d@%s%v", unit, role, replica, host, gpus)
}

// places lists where a plan wants engines.
func places(p *control.PlanDetail) (out []string) {
	for _, u := range p.Units {
		replica := map[string]int{}
		for _, r := range u.Replicas {
			for _, sh := range r.Shards {
				out = append(out, place(u.ID, r.Role, replica[r.Role], sh.Host, sh.GPUs))
			}
			replica[r.Role]++
		}
	}
	slices.Sort(out)
	return out
}

// strange says which host does not run exactly the engines that it shall, by its processes.
func (s *sim) strange(parts map[string][]string) string {
	for _, h := range s.hosts {
		runs := engines(h.dir) // ids in the API have no hyphens
		for _, id := range parts[h.name] {
			bare := id[strings.IndexByte(id, '_')+1:]
			if runs[bare] == 0 {
				return fmt.Sprintf("%s has no process of %s", h.name, id)
			}
			delete(runs, bare)
		}
		if len(runs) > 0 {
			return fmt.Sprintf("%s runs what it shall not: %v", h.name, runs)
		}
	}
	return ""
}

// converge waits until the fleet is what is planned, and each model serves.
func (s *sim) converge(t *testing.T, after string) {
	t.Helper()
	took := within(t, convergeLimit, after+": converges", func() string { return s.wrong(t) })
	for name := range s.models {
		within(t, convergeLimit, after+": "+name+" serves", func() string {
			got := trial.Chat(t.Context(), s.gateway.URL, s.secret, trial.Ask{Model: name, Prompt: "after " + after, MaxTokens: 8, Stream: true})
			if !got.Whole {
				return fmt.Sprintf("%d %v %s", got.Status, got.Err, got.Text)
			}
			return ""
		})
	}
	t.Logf("%s: converged in %v", after, took.Round(100*time.Millisecond))
}
