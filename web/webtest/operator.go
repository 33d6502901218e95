package webtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/admin"
	"millrace/web/report"
	"millrace/web/ui"
)

// business is the fixture as the operator's pages see it: some methods share names with the customer's.
type business struct{ f *Fixture }

func (w *world) operatorWorld() {
	w.orgs = []admin.Customer{
		{ID: id(kindOrg, 1), Name: "Acme Robotics", Balance: usd("182.4"), LastRequest: ago(20 * time.Second), Created: ago(days(120))},
		{ID: id(kindOrg, 2), Name: "Bluefin Search", Balance: usd("4102.18"), LastRequest: ago(time.Second), Created: ago(days(300))},
		{ID: id(kindOrg, 3), Name: "Câmara Municipal de Évora", Balance: usd("-12.06"), LastRequest: ago(days(2)), Created: ago(days(14))},
		{ID: id(kindOrg, 4), Name: "Delta Learning", Balance: usd("0.000412"), Created: ago(days(1))},
	}
	for i := range w.orgs {
		w.orgs[i].Month, w.orgs[i].Requests = w.revenue(w.orgs[i].ID, monthOf(Now), Now)
		if i < 2 { // what serving the others costs is not known
			w.orgs[i].Cost = new(w.orgs[i].Month * 2 / 3)
		}
	}
	for i, m := range w.models {
		now := admin.PriceVersion{ID: m.Version, Prices: m.Prices, Terms: m.Terms, Effective: m.Since, Published: m.Since.Add(-days(7)), By: "ops@millrace.example", Note: "Autumn prices"}
		old := admin.PriceVersion{ID: id(kindPrice, 50+i), Prices: perM("0.75", "0.20", "1.10"), Effective: m.Since.Add(-days(90)), Published: m.Since.Add(-days(97)), By: "ops@millrace.example"}
		w.prices[id(kindModel, i)] = []admin.PriceVersion{now, old}
		if m.Next != nil {
			next := admin.PriceVersion{ID: id(kindPrice, 90+i), Prices: m.Next.Prices, Effective: m.Next.Effective, Published: ago(days(2)), By: "ops@millrace.example", Note: "Cheaper after the cache release"}
			w.prices[id(kindModel, i)] = []admin.PriceVersion{next, now, old}
		}
	}
	w.prices[id(kindModel, len(w.models))] = nil
	w.fleetWorld()
	w.capacityWorld()
	w.outbox = []admin.Message{
		{At: ago(3 * time.Minute), To: "lea@delta.example", Link: "http://127.0.0.1:8080/login/link?t=Qm9sZCBhbmQgYnJhc3M", Expires: Now.Add(12 * time.Minute)},
		{At: ago(2 * time.Hour), To: "dana@acme.example", Used: true, Expires: ago(105 * time.Minute)},
		{At: ago(days(1)), To: "kim@acme.example", Expires: ago(days(1))},
	}
}

func (w *world) fleetWorld() {
	for n := 1; n <= 9; n++ {
		h := admin.Host{ID: id(kindHost, n), Name: fmt.Sprintf("ber-%02d", n), Group: "Berlin rack A", State: admin.HostConnected, LastSeen: ago(2 * time.Second), Joined: ago(days(60)),
			Agent: "0.1.0", Address: fmt.Sprintf("10.0.0.%d", n), CPU: "AMD EPYC 9654, 96 cores", Memory: 1536 << 30}
		state, unit := ui.GPUDecode, "llama-70b/1"
		switch {
		case n == 3 || n == 6:
			state = ui.GPUPrefill
		case n == 5:
			state, unit, h.State, h.Note = ui.GPUDraining, "qwen-32b/1", admin.HostDraining, "drains for a kernel update"
		case n > 7:
			state, unit = ui.GPUFree, ""
		}
		if unit != "" {
			h.Units = []string{unit}
		}
		for g := range 8 {
			h.GPUs = append(h.GPUs, admin.GPU{Index: g, Name: "NVIDIA H200", State: state, Unit: unit})
		}
		if n == 7 {
			h.GPUs[7].State, h.Note = ui.GPUFailed, "GPU 7 fell off the bus; the unit serves on 7 of 8 ranks"
		}
		w.hosts = append(w.hosts, h)
	}
	w.hosts = append(w.hosts, admin.Host{ID: id(kindHost, 20), Name: "laptop", Group: "This machine", State: admin.HostConnected, LastSeen: ago(time.Second), Joined: ago(days(1)), Agent: "0.1.0", CPU: "8 cores", Memory: 16 << 30, Simulated: true, Units: []string{"sim/1"}},
		admin.Host{ID: id(kindHost, 21), Name: "ams-01", Group: "Amsterdam", State: admin.HostLost, LastSeen: ago(9 * time.Minute), Joined: ago(days(30)), Agent: "0.1.0", GPUs: []admin.GPU{{Index: 0, Name: "NVIDIA H100", State: ui.GPUFailed}, {Index: 1, Name: "NVIDIA H100", State: ui.GPUFailed}}, Note: "no word for 9 minutes"})
	q := func(p50, p95 int) ui.Quantiles {
		return ui.Quantiles{P50: time.Duration(p50) * time.Millisecond, P95: time.Duration(p95) * time.Millisecond}
	}
	w.units = []admin.Unit{
		{ID: id(kindUnit, 1), Name: "llama-70b/1", Engine: "vllm 0.32", Model: "acme/llama-70b", Release: "r41", Hosts: []string{"ber-01", "ber-03"}, State: admin.UnitServing, Since: ago(days(6)), Running: 212, Waiting: 3, KVUsed: 712, Prompt: 41_220_000, Cached: 23_495_000, FirstTok: q(212, 640), Requests: 4_100, Errors: 2},
		{ID: id(kindUnit, 2), Name: "deepseek-flash/1", Engine: "sglang 0.6", Model: "acme/deepseek-flash", Release: "r8", Hosts: []string{"ber-06", "ber-07"}, State: admin.UnitServing, Since: ago(days(1)), Note: "7 of 8 decode ranks", Running: 480, Waiting: 96, KVUsed: 931, Prompt: 88_004_118, Cached: 61_600_000, FirstTok: q(388, 1720), Requests: 9_700, Errors: 41},
		{ID: id(kindUnit, 3), Name: "qwen-32b/1", Engine: "vllm 0.32", Model: "acme/qwen-32b", Release: "r2", Hosts: []string{"ber-05"}, State: admin.UnitDraining, Since: ago(40 * time.Second), Running: 6, KVUsed: 84, FirstTok: q(180, 300)},
		{ID: id(kindUnit, 4), Name: "sim/1", Engine: "vllm 0.32", Simulated: true, Model: "acme/llama-70b", Release: "sim", Hosts: []string{"laptop"}, State: admin.UnitServing, Since: ago(days(1)), Running: 4, KVUsed: 120, Prompt: 18_000, Cached: 9_000, FirstTok: q(41, 90), Requests: 30},
		{ID: id(kindUnit, 5), Name: "partner/1", Engine: "vllm", Model: "acme/llama-70b", Attached: "https://inference.partner.example", State: admin.UnitFailed, Since: ago(4 * time.Minute), Note: "connection refused"},
	}
}

func (b business) Overview(context.Context) (admin.Overview, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	o := admin.Overview{NoMail: true, Customers: int64(len(b.f.orgs)), Units: int64(len(b.f.units)), Hosts: int64(len(b.f.hosts))}
	if b.f.state == Fresh {
		return o, nil
	}
	o.Active, o.Requests, o.Errors = 2, 812_440, 377
	o.Month, _ = b.f.revenue(ids.Nil, monthOf(Now), Now)
	o.LastMonth, _ = b.f.revenue(ids.Nil, monthOf(Now).AddDate(0, -1, 0), monthOf(Now))
	o.Usage[usage.Input], o.Usage[usage.Cached], o.Usage[usage.Output] = 2_104_000_000, 2_780_000_000, 611_000_000
	for i := 23; i >= 0; i-- {
		start := Now.Truncate(time.Hour).Add(-time.Duration(i) * time.Hour)
		n := noise("ops", start.Hour())
		addFigures(&o.Margin, hourMargin(start.Hour()))
		o.Hours = append(o.Hours, admin.HourPoint{Start: start, Requests: 20_000 + 30*n, Tokens: 150_000_000 + 200_000*n})
	}
	o.FirstTok = ui.Quantiles{P50: 240 * time.Millisecond, P95: 910 * time.Millisecond}
	o.Serving, o.Simulated, o.Connected = 3, 1, 10
	o.Reconcile = admin.Reconciled{At: ago(2 * time.Hour), Watermark: ago(125 * time.Minute)}
	o.Overrun, o.Overruns, o.Aside, o.RaterLag = usd("0.003218"), 2, 1, 40*time.Millisecond
	return o, nil
}

func (b business) Usage(_ context.Context, q report.Query) ([]report.Cell, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.f.allCells(q), nil
}

// allCells are every customer's invented usage: each buys a different multiple of the first one's.
func (w *world) allCells(q report.Query) []report.Cell {
	var out []report.Cell
	for i, o := range w.orgs {
		if q.Org != ids.Nil && q.Org != o.ID {
			continue
		}
		for _, c := range w.cells(q) {
			times := []int64{1, 9 + noise(o.Name, c.Bucket.Unix())/200, noise(c.Bucket.Unix()) / 600, 0}[i%4]
			c.Requests, c.Errors, c.Cost = c.Requests*times, c.Errors*times, c.Cost*money.Nano(times)
			for k := range c.Usage {
				c.Usage[k] *= times
			}
			if q.Group == report.ByOrg {
				c.Group, c.Label = ids.Format(ids.Org, o.ID), o.Name
			}
			if times > 0 {
				out = append(out, c)
			}
		}
	}
	return out
}

// revenue sums what customers, or one, were charged in a span.
func (w *world) revenue(org ids.ID, from, to time.Time) (sum money.Nano, requests int64) {
	for _, c := range w.allCells(report.Query{From: from, To: to, Zone: time.UTC, Step: report.StepDay, Org: org}) {
		sum, requests = sum+c.Cost, requests+c.Requests
	}
	return sum, requests
}

func monthOf(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC) }

func (b business) Customers(_ context.Context, search, _ string) (admin.CustomerList, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	var out admin.CustomerList
	for _, o := range b.f.orgs {
		if strings.Contains(strings.ToLower(o.Name), strings.ToLower(search)) {
			out.Rows = append(out.Rows, o)
		}
	}
	return out, nil
}

func (b business) Customer(_ context.Context, want ids.ID) (admin.CustomerDetail, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for _, o := range b.f.orgs {
		if o.ID != want {
			continue
		}
		d := admin.CustomerDetail{Customer: o, Zone: "Europe/Berlin", Members: []admin.MemberLine{{Email: "dana@acme.example", Role: "owner", LastSeen: ago(time.Minute)}}}
		if o.ID != id(kindOrg, 1) {
			return d, nil
		}
		d.Promo, d.Held, d.Limit, d.Owed, d.Cap, d.Grants = usd("20"), usd("0.84"), usd("500"), usd("112.40"), b.f.cap, slices.Clone(b.f.grants)
		for _, k := range b.f.keys {
			state := "active"
			if !k.Revoked.IsZero() {
				state = "revoked"
			} else if !k.Expires.IsZero() && k.Expires.Before(Now) {
				state = "expired"
			}
			d.Keys = append(d.Keys, admin.KeyLine{Name: k.Name, Shown: k.Prefix + "…" + k.Last4, Project: k.Project, LastUsed: k.LastUsed, Used: k.Used, Cap: k.Cap, State: state})
		}
		return d, nil
	}
	return admin.CustomerDetail{}, errGone
}

func (b business) Hosts(context.Context) ([]admin.Host, error) { return slices.Clone(b.f.hosts), nil }

func (b business) Host(_ context.Context, want ids.ID) (admin.Host, error) {
	for _, h := range b.f.hosts {
		if h.ID == want {
			return h, nil
		}
	}
	return admin.Host{}, errGone
}

func (b business) Units(context.Context) ([]admin.Unit, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return slices.Clone(b.f.units), nil
}

func (b business) Unit(_ context.Context, want ids.ID) (admin.Unit, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for _, u := range b.f.units {
		if u.ID == want {
			return u, nil
		}
	}
	return admin.Unit{}, errGone
}
