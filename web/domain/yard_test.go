package domain_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"millrace/internal/ids"
	"millrace/tenants"
)

// fill adds so many hosts of eight GPUs, as agents tell of them, every tenth one with a problem.
func (s *shop) fillFleet(hosts int) {
	s.exec(`INSERT INTO hosts (id, name, provider, region, network, failure_domain, observed, seen_at)
		SELECT gen_random_uuid(), 'gpu-' || lpad(n::text, 4, '0'), 'provider ' || n % 3, 'region ' || n % 5, 'net ' || n % 5, 'rack ' || n / 18,
			jsonb_build_object('hostname', 'gpu-' || n, 'cpus', 192, 'memory_bytes', 1649267441664, 'data_url', 'https://10.0.0.1:9000',
				'gpus', (SELECT jsonb_agg(jsonb_build_object('index', g, 'uuid', 'GPU-' || n || '-' || g, 'model', 'NVIDIA H200', 'arch', 'sm90', 'memory_bytes', 151397597184,
					'domain', '', 'nics', jsonb_build_array('mlx5_' || g))) FROM generate_series(0, 7) g),
				'nics', (SELECT jsonb_agg(jsonb_build_object('name', 'eth' || g, 'gbps', 400, 'up', true, 'rdma', 'mlx5_' || g)) FROM generate_series(0, 7) g),
				'problems', CASE WHEN n % 10 = 0 THEN jsonb_build_array(jsonb_build_object('code', 'xid', 'subject', 'gpu:3', 'message', 'Xid 79', 'fatal', true, 'since_ms', 0)) ELSE '[]'::jsonb END,
				'units', '[]'::jsonb), now()
		FROM generate_series(1, $1::int) n`, hosts)
}

func (s *shop) staffPage(t testing.TB, path string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.console.URL+path, nil)
	s.must(err)
	r.AddCookie(&http.Cookie{Name: "millrace_session", Value: s.staff})
	resp, err := http.DefaultClient.Do(r)
	s.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	s.must(err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %d: %s", path, resp.StatusCode, body)
	}
	return string(body)
}

func TestTheTopologyShowsEveryHost(t *testing.T) {
	s := newShop(t)
	s.fillFleet(40)
	body := s.staffPage(t, "/admin/fleet")
	if n := strings.Count(body, `class="gpu free"`); n != 40*8-4+2 { // the shop's own one, and one in the legend
		t.Errorf("%d free GPUs are drawn", n)
	}
	if n := strings.Count(body, `class="gpu x"`); n != 4+1 {
		t.Errorf("%d failed GPUs are drawn", n)
	}
	if body := s.staffPage(t, "/admin/fleet?state=trouble"); strings.Count(body, `class="host"`) != 4+1 { // and the shop's own, whose agent is not there
		t.Errorf("hosts with problems: %d", strings.Count(body, `class="host"`))
	}
}

// What an operator does from a demand to units that start, by forms alone.
func TestAnOperatorPlansUnits(t *testing.T) {
	s := newShop(t)
	s.fillFleet(4)
	s.must(s.deps.Recipes.AddStarter(t.Context()))
	list, err := s.deps.Recipes.List(t.Context(), tenants.System())
	s.must(err)
	var chosen ids.ID
	for _, r := range list {
		if r.Recipe.Name == "simulated-1p1d" {
			chosen = r.ID
		}
	}
	model := s.models.Models()[0]
	form := url.Values{"model": {ids.Format(ids.Model, model.ID)}, "recipe": {ids.Format(ids.Recipe, chosen)}, "units": {"9"}, "spread": {"yes"}}
	if status, to := s.post("/admin/fleet/demands", form); status != http.StatusSeeOther || to != "/admin/fleet?done=demand" {
		t.Fatalf("%d %s", status, to)
	}
	if body := s.staffPage(t, "/admin/fleet"); !strings.Contains(body, "simulated-1p1d") || strings.Contains(body, `class="gpu s"`) {
		t.Error("a demand moves something by itself, or is not shown")
	}
	status, plan := s.post("/admin/fleet/plans", nil)
	if status != http.StatusSeeOther {
		t.Fatalf("%d %s", status, plan)
	}
	body := s.staffPage(t, plan)
	if n := strings.Count(body, "+ start"); n != 4 || !strings.Contains(body, "What could not be placed") {
		t.Errorf("%d of 9 units start on 4 hosts:\n%s", n, body)
	}
	if status, to := s.post(plan+"/commit", nil); status != http.StatusSeeOther || to != "/admin/fleet?done=committed" {
		t.Fatalf("%d %s", status, to)
	}
	if status, _ := s.post(plan+"/commit", nil); status != http.StatusConflict {
		t.Errorf("committed twice: %d", status)
	}
	if body := s.staffPage(t, plan); !strings.Contains(body, "holds") || strings.Contains(body, "Commit this plan") {
		t.Error("a committed plan does not say that it holds")
	}
	for _, path := range []string{"/admin/fleet/plans", "/admin/fleet/recipes", "/admin/fleet/recipes/" + ids.Format(ids.Recipe, chosen), "/admin/fleet/demands"} {
		s.staffPage(t, path)
	}
}

// post sends an operator's form and gives where it leads.
func (s *shop) post(path string, form url.Values) (status int, to string) {
	r, err := http.NewRequest(http.MethodPost, s.console.URL+path, strings.NewReader(form.Encode()))
	s.must(err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.AddCookie(&http.Cookie{Name: "millrace_session", Value: s.staff})
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	s.must(err)
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location")
}

// BenchmarkTopology draws a thousand hosts of eight GPUs each.
func BenchmarkTopology(b *testing.B) {
	s := newShop(b)
	s.fillFleet(1000)
	for b.Loop() {
		if body := s.staffPage(b, "/admin/fleet"); len(body) < 100_000 {
			b.Fatal("a short page")
		}
	}
}
