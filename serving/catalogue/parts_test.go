package catalogue_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
)

// placed is a unit of several engines in the database.
type placed struct {
	t      *testing.T
	d      *db.DB
	c      *catalogue.Catalogue
	model  ids.ID
	host   ids.ID
	rel    ids.ID
	plan   ids.ID
	parent ids.ID
}

func (p *placed) exec(sql string, args ...any) {
	p.t.Helper()
	err := p.d.InTx(p.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(p.t.Context(), sql, args...)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func newPlaced(t *testing.T, transfer string) *placed {
	t.Helper()
	c, d, _ := start(t)
	m, err := c.CreateModel(t.Context(), catalogue.ModelInput{Name: "acme/one", Context: 1000}, operator)
	if err != nil {
		t.Fatal(err)
	}
	p := &placed{t: t, d: d, c: c, model: m.ID, host: ids.New(), rel: ids.New(), plan: ids.New(), parent: ids.New()}
	recipe := ids.New()
	p.exec(`INSERT INTO hosts (id, name, data_url) VALUES ($1, 'h', 'https://10.0.0.1:9000')`, p.host)
	p.exec(`INSERT INTO recipes (id, name, spec) VALUES ($1, 'pd', jsonb_build_object('transfer', $2::jsonb))`, recipe, transfer)
	p.exec(`INSERT INTO releases (id, model_id, recipe_id, number, state) VALUES ($1, $2, $3, 1, 'serving')`, p.rel, p.model, recipe)
	p.exec(`INSERT INTO plans (id, cause, body, demands, digest, state, created_by) VALUES ($1, 'operator', '{}', '{}', 'd', 'draft', 'me')`, p.plan)
	p.exec(`INSERT INTO units (id, name, model_id, release_id, engine, upstream_model, parts, plan_id, state) VALUES ($1, 'pd-1', $2, $3, 'vllm', 'inner', 3, $4, 'serving')`,
		p.parent, p.model, p.rel, p.plan)
	return p
}

func (p *placed) part(role string, replica, shard int, spec string) ids.ID {
	p.t.Helper()
	id := ids.New()
	p.exec(`INSERT INTO units (id, name, model_id, release_id, engine, host_id, upstream_model, part_of, role, replica, shard, spec, plan_id, state)
		VALUES ($1, $2, $3, $4, 'vllm', $5, 'inner', $6, $7, $8, $9, $10::jsonb, $11, 'serving')`,
		id, "pd-1/"+role+ids.Format("x", id), p.model, p.rel, p.host, p.parent, role, replica, shard, spec, p.plan)
	return id
}

func (p *placed) load() []*catalogue.Unit {
	p.t.Helper()
	if err := p.c.Load(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	m, _ := p.c.Model("acme/one")
	return m.Units
}

const nixlSpec = `{"Address":"10.0.0.7","Parallel":{"Tensor":4},"Transfer":{"Backend":"nixl","Port":23004,"Engine":"e-7"}}`

// A unit of several engines is one unit of its model, while it serves. Only the hosts that answer are its parts.
func TestAUnitOfSeveralEngines(t *testing.T) {
	p := newPlaced(t, `{"backend":"nixl","max_local_prompt":2048}`)
	d2, d1 := p.part("decode", 2, 0, `{}`), p.part("decode", 1, 0, `{}`)
	pre := p.part("prefill", 0, 0, nixlSpec)
	p.part("prefill", 0, 1, nixlSpec) // another host of the same engine
	units := p.load()
	if len(units) != 1 {
		t.Fatalf("%d units", len(units))
	}
	u := units[0]
	if u.ID != p.parent || u.Handoff == nil || u.Handoff.Name() != "nixl-pull" || u.MaxPrompt != 2048 || len(u.Parts) != 3 || u.Attached || u.Host != p.host {
		t.Fatalf("%+v", u)
	}
	if got := u.IDs(engine.Decode); len(got) != 2 || got[0] != d1 || got[1] != d2 {
		t.Errorf("decode parts %v", got)
	}
	part := u.Part(pre)
	if part == nil || part.Role != engine.Prefill || part.Peer.Engine != "e-7" || part.Peer.Host != "10.0.0.7" || part.Peer.Port != 23004 || part.Peer.Parallel.Tensor != 4 {
		t.Fatalf("%+v", part)
	}
	if again := p.load(); again[0] != u {
		t.Error("a unit that did not change is another one")
	}
	if err := p.c.Detach(t.Context(), p.parent, operator); !fault.Is(err, fault.NotFound) {
		t.Errorf("a placed unit was detached: %v", err)
	}
	d3 := p.part("decode", 3, 0, `{}`)
	if now := p.load(); now[0] == u || len(now[0].Parts) != 4 || now[0].Part(pre) != part || now[0].Part(d3) == nil {
		t.Errorf("with another part: %+v", now[0])
	}
	p.exec(`UPDATE units SET state = 'draining' WHERE id = $1`, p.parent)
	if now := p.load(); len(now) != 0 {
		t.Errorf("a draining unit gets requests: %+v", now[0])
	}
	if _, known := p.c.Unit(pre); known {
		t.Error("its parts stay")
	}
}

// Engines that each do all are units by themselves; what cannot hand over is no unit, and harms no other.
func TestUnitsThatAreNone(t *testing.T) {
	p := newPlaced(t, `{"backend":"smoke"}`)
	p.part("prefill", 0, 0, nixlSpec)
	p.part("decode", 0, 0, `{}`)
	whole := p.part("whole", 0, 0, `{}`)
	units := p.load()
	if len(units) != 1 || units[0].ID != whole || units[0].Handoff != nil {
		t.Errorf("%+v", units)
	}
	if _, err := catalogue.Join(catalogue.Spec{Engine: engine.VLLM, Name: "x"}, engine.Transfer{Backend: "nixl"}, 0, units); err == nil {
		t.Error("a unit without prefill and decode")
	}
}
