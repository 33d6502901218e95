package fleetsim

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"millrace/api/control"
)

// Models, each served in a way of its own.
const (
	whole = "fleet/whole" // engines of eight GPUs
	pair  = "fleet/pair"  // prefill and decode, four GPUs each
	racks = "fleet/racks" // prefill and decode, each over most of a rack
)

const starterRacks = "../../../serving/recipe/catalogue/simulated-rack-64p64d.yaml"

// size is how large a fleet is.
type size struct {
	eights    [providers]int // hosts of 8 GPUs
	rackHosts int            // of 4 GPUs, in each of the last provider's two racks
	used      int            // GPUs of a rack that a unit takes
}

var (
	small = size{eights: [providers]int{4, 3, 3}, rackHosts: 5, used: 16}
	full  = size{eights: [providers]int{14, 14, 12}, rackHosts: 18, used: 64}
)

// openShop makes models with prices, and a customer with a key.
func (s *sim) openShop(t *testing.T) {
	s.models, s.recipes = map[string]string{}, map[string]string{}
	prices := map[string]string{"input": "1", "cached": "0.1", "cache_write": "1", "output": "2", "reasoning": "2", "image": "1", "audio": "1", "request": "0"}
	for _, name := range []string{whole, pair, racks} {
		var m control.Model
		s.do(t, http.MethodPost, "/models", map[string]any{"name": name, "context_tokens": 131072, "max_output_tokens": 4096}, &m)
		s.do(t, http.MethodPost, "/models/"+m.ID+"/prices", map[string]any{"usd_per_million": prices, "note": "a trial", "confirm": name}, nil)
		s.models[name] = m.ID
	}
	var org control.Org
	s.do(t, http.MethodPost, "/orgs", map[string]any{"name": "Fleet"}, &org)
	s.do(t, http.MethodPost, "/orgs/"+org.ID+"/grants", map[string]any{"amount_usd": "900", "kind": "promotional", "reason": "a trial"}, nil)
	var list control.Page[control.Project]
	s.do(t, http.MethodGet, "/orgs/"+org.ID+"/projects", nil, &list)
	var key control.CreatedKey
	s.do(t, http.MethodPost, "/orgs/"+org.ID+"/keys", map[string]any{"name": "key", "project_id": list.Data[0].ID}, &key)
	s.org, s.secret = org.ID, key.Secret
}

// join starts every host's agent, some at a time, and says where each is.
func (s *sim) join(t *testing.T, z size) {
	t.Helper()
	for p, n := range z.eights {
		for i := range n {
			s.add(&host{name: fmt.Sprintf("p%d-%02d", p+1, i), provider: p, region: fmt.Sprintf("r%d", p+1), rack: fmt.Sprintf("site%d", p+1), gpus: 8, arch: "sm90", memory: 80 * gib})
		}
	}
	for r := range 2 {
		for i := range z.rackHosts {
			domain := fmt.Sprintf("rack%d.1", r+1)
			s.add(&host{name: fmt.Sprintf("rack%d-%02d", r+1, i), provider: providers - 1, region: "racks", rack: fmt.Sprintf("rack%d", r+1), gpus: 4, arch: "sm100", memory: 185 * gib, domain: domain})
		}
	}
	each(t, s.hosts, func(h *host) error {
		if err := h.describe(); err != nil {
			return err
		}
		return s.startAgent(h)
	})
	within(t, startLimit, "every host has joined", func() string {
		var page control.Page[control.Host]
		if err := s.get("/hosts", &page); err != nil {
			return err.Error()
		}
		for _, h := range s.hosts {
			select {
			case <-h.agent.Done():
				t.Fatalf("%s has ended: %s", h.name, h.agent.Said())
			default:
			}
		}
		seen := 0
		for _, got := range page.Data {
			if h := s.byName[got.Name]; h != nil && got.Connected && got.GPUs == h.gpus {
				h.id = got.ID
				seen++
			}
		}
		if seen < len(s.hosts) {
			return fmt.Sprintf("%d of %d; the first said: %s", seen, len(s.hosts), s.hosts[0].agent.Said())
		}
		return ""
	})
	for _, h := range s.hosts {
		s.do(t, http.MethodPut, "/hosts/"+h.id+"/facts", map[string]any{"provider": fmt.Sprintf("provider-%d", h.provider+1), "region": h.region,
			"network": fmt.Sprintf("net-%d", h.provider+1), "failure_domain": h.rack, "capacity_kind": "reserved", "gpu_hour_usd": "2"}, nil)
	}
	s.readRecipes(t, z)
}

func (s *sim) add(h *host) {
	n := len(s.hosts)
	h.dir, h.address = s.path("agents/"+h.name), fmt.Sprintf("127.9.%d.%d", h.provider+1, n+1)
	s.hosts, s.byName[h.name] = append(s.hosts, h), h
}

// each does something with every host, a few at a time.
func each(t *testing.T, hosts []*host, do func(*host) error) {
	t.Helper()
	const atOnce = 4
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, h := range hosts {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if err := do(h); err != nil {
				t.Errorf("host %s: %v", h.name, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// readRecipes adds the unit of racks in this fleet's size, and finds what every installation has. It asks for no measured link:
// simulated hosts have no fabric to measure.
func (s *sim) readRecipes(t *testing.T, z size) {
	t.Helper()
	text, err := os.ReadFile(starterRacks)
	if err != nil {
		t.Fatal(err)
	}
	ours := strings.NewReplacer("simulated-rack-64p64d", "simulated-racks", "domain: 72", fmt.Sprintf("domain: %d", 4*z.rackHosts),
		": 64", fmt.Sprintf(": %d", z.used), "[32]", fmt.Sprintf("[%d]", z.used/2), ", min_gbps: 200", "").Replace(string(text))
	s.do(t, http.MethodPost, "/recipes", map[string]string{"yaml": ours}, nil)
	var page control.Page[control.Recipe]
	s.do(t, http.MethodGet, "/recipes", nil, &page)
	for _, r := range page.Data {
		s.recipes[r.Name] = r.ID
	}
}

// demand says how many units a model wants.
func (s *sim) demand(t *testing.T, model, recipe string, units int) {
	t.Helper()
	in := map[string]any{"units": units, "spread": true, "regions": []string{"r1", "r2", "r3"}}
	if model == racks {
		in["regions"] = []string{"racks"}
	}
	s.do(t, http.MethodPut, "/demands/"+s.models[model]+"/"+s.recipes[recipe], in, nil)
}

// commit drafts and commits a plan. One that was overtaken is drafted again.
func (s *sim) commit(t *testing.T, note string) (made control.PlanDetail) {
	t.Helper()
	within(t, convergeLimit, "a plan is committed", func() string {
		made = control.PlanDetail{}
		err := s.desk.Do(t.Context(), http.MethodPost, "/plans", map[string]string{"note": note}, &made)
		if err == nil && len(made.Unmet) > 0 {
			t.Fatalf("plan %d: %+v", made.Plan.Number, made.Unmet)
		}
		if err == nil {
			err = s.desk.Do(t.Context(), http.MethodPut, "/plans/"+made.Plan.ID+"/commitment", nil, nil)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	for _, m := range made.Moves {
		t.Logf("plan %d: %s: %s", made.Plan.Number, m.Kind, m.Text)
	}
	return made
}
