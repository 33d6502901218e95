package webtest

import (
	"fmt"
	"hash/fnv"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/price"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/fleet"
	"millrace/serving/recipe/store"
	"millrace/web/admin"
	"millrace/web/bill"
	"millrace/web/console"
	"millrace/web/ui"
)

// Kinds of ids.
const (
	kindOrg byte = iota + 1
	kindProject
	kindKey
	kindModel
	kindPrice
	kindHost
	kindUnit
	kindRequest
	kindUser
	kindTxn
	kindAside
	kindTopup
	kindCap
	kindHook
	kindAsk
	kindInvoice
	kindPayment
	kindNote
	kindPact
	kindPlan
	kindRecipe
)

// world is everything that can be read.
type world struct {
	models    []console.Model
	keys      []console.Key
	projects  []console.Project
	cap       *money.Nano
	grants    []admin.GrantLine
	orgs      []admin.Customer
	prices    map[ids.ID][]admin.PriceVersion
	hosts     []admin.Host
	yardHosts []fleet.HostView
	yardUnits []fleet.UnitView
	recipes   []store.Stored
	units     []admin.Unit
	audit     []ui.AuditEntry
	outbox    []admin.Message
	moneys    moneyWorld
	pay       paying
	till      admin.PaymentsState

	septemberClosed bool
	soFarFails      bool // the running month cannot be read
	bills           []bill.Bill
	details         invoice.Details
	contracts       []price.Contract
	low             console.Low
}

func usd(s string) money.Nano {
	n, err := money.ParseUSD(s)
	if err != nil {
		panic(err) // the fixture's own constant
	}
	return n
}

func capOf(s string) *money.Nano { n := usd(s); return &n }

func perM(input, cached, output string) (p usage.Prices) {
	for c, s := range map[usage.Class]string{usage.Input: input, usage.Cached: cached, usage.Output: output, usage.Reasoning: output} {
		v, err := money.ParsePerMillion(s)
		if err != nil {
			panic(err)
		}
		p[c] = v
	}
	return p
}

// noise is a number from 0 to 999 that depends on its name alone.
func noise(parts ...any) int64 {
	h := fnv.New32a()
	fmt.Fprint(h, parts...)
	return int64(h.Sum32()>>7) % 1000
}

func ago(d time.Duration) time.Time { return Now.Add(-d) }

func days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

func newFixture(s State) *Fixture {
	f := &Fixture{state: s, used: map[string]bool{}, out: map[string]bool{}}
	f.prices = map[ids.ID][]admin.PriceVersion{}
	f.projects = []console.Project{{ID: id(kindProject, 1), Name: "default"}}
	if s == Fresh {
		return f
	}
	f.customerWorld()
	f.operatorWorld()
	f.moneyPages()
	f.payWorld()
	f.tillWorld()
	f.billWorld()
	f.contractWorld()
	return f
}

func (w *world) customerWorld() {
	since := time.Date(2026, time.October, 1, 0, 0, 0, 0, time.UTC)
	ahead := &console.PriceAhead{Prices: perM("0.24", "0.06", "0.72"), Effective: time.Date(2026, time.December, 15, 0, 0, 0, 0, time.UTC)}
	w.models = []console.Model{
		{Name: "acme/deepseek-flash", Context: 1 << 20, MaxOutput: 262_144, Prices: perM("0.28", "0.07", "0.88"), Version: id(kindPrice, 1), Since: since, Next: ahead, Available: true, Terms: flashTerms()},
		{Name: "acme/llama-70b", Context: 131_072, MaxOutput: 16_384, Prices: perM("0.60", "0.15", "0.90"), Version: id(kindPrice, 2), Since: since, Simulated: true, Available: true},
		{Name: "acme/qwen-32b", Context: 65_536, MaxOutput: 8_192, Prices: perM("0.20", "0.05", "0.40"), Version: id(kindPrice, 3), Since: since},
	}
	w.projects = []console.Project{
		{ID: id(kindProject, 1), Name: "build", Cap: capOf("500")},
		{ID: id(kindProject, 2), Name: "research"},
		{ID: id(kindProject, 3), Name: "support", Cap: capOf("360")},
	}
	key := func(n, project int, name, prefix, last4 string) console.Key {
		p := w.projects[project-1]
		return console.Key{ID: id(kindKey, n), Name: name, Prefix: "mr_live_" + prefix, Last4: last4, Project: p.Name, ProjectID: p.ID, Created: ago(days(10 * n)), CreatedBy: "dana@acme.example"}
	}
	w.keys = []console.Key{key(1, 1, "ci-nightly", "7Kd", "c1Qe"), key(2, 3, "support-bot", "9fA", "02xZ"), key(3, 2, "data-team", "1Qm", "Lp7s"), key(4, 2, "old-laptop", "Z2p", "9aaK")}
	w.keys[0].LastUsed, w.keys[0].LastModel, w.keys[0].Used, w.keys[0].Cap = ago(3*time.Minute), "acme/llama-70b", w.month(w.keys[0].ID), capOf("300")
	w.keys[1].LastUsed, w.keys[1].LastModel, w.keys[1].Used, w.keys[1].Cap = ago(20*time.Second), "acme/deepseek-flash", w.month(w.keys[1].ID), capOf("360")
	w.keys[2].LastUsed, w.keys[2].LastModel, w.keys[2].Used = ago(30*time.Hour), "acme/qwen-32b", w.month(w.keys[2].ID)
	w.keys[3].LastUsed, w.keys[3].Expires = ago(days(92)), time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	w.projects[0].Used, w.projects[1].Used, w.projects[2].Used = w.keys[0].Used, w.keys[2].Used, w.keys[1].Used
	w.cap = capOf("1000")
	w.low = console.Low{Below: usd("200"), Since: ago(3 * time.Hour)}
	w.grants = []admin.GrantLine{
		{At: ago(days(5)), Amount: usd("20"), Left: usd("20"), Promo: true, Ends: time.Date(2027, time.January, 1, 0, 0, 0, 0, time.UTC), Reason: "Launch credit", By: "ops@millrace.example"},
		{At: ago(days(40)), Amount: usd("1500"), Left: usd("162.4"), Reason: "Invoice 2026-118, paid by transfer", By: "ops@millrace.example"},
	}
	w.audit = []ui.AuditEntry{
		{At: ago(4 * time.Hour), Actor: "dana@acme.example", Org: "Acme Robotics", Action: "cap.set", Target: "key support-bot", Change: "monthly cap $400.00 → $500.00", IP: "203.0.113.7", RequestID: "req_8c1f0a"},
		{At: ago(days(5)), Actor: "ops@millrace.example", Org: "Acme Robotics", Action: "credit.grant", Target: "Acme Robotics", Change: "$20.00 promotional, ends 31 Dec 2026", IP: "198.51.100.4", RequestID: "req_77ab21"},
		{At: ago(days(10)), Actor: "dana@acme.example", Org: "Acme Robotics", Action: "key.create", Target: "key ci-nightly", Change: "project build, cap $100.00", IP: "203.0.113.7", RequestID: "req_51d9e3"},
		{At: ago(days(31)), Actor: "support@millrace.example", ActingAs: "dana@acme.example", Org: "Acme Robotics", Action: "key.read", Target: "key old-laptop", IP: "198.51.100.9", RequestID: "req_0be412"},
	}
}
