package e2e

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	fleet "millrace/agents/wire"
	"millrace/cmd/millrace/trial"
	"millrace/db"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/engine"
)

// fabricPort is a port that peers may use.
func fabricPort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// A unit of a prefill and a decode engine on two hosts, by their agents: it serves, its legs are in their journals, the bill is
// one engine's, and every token is explained.
func TestAUnitOfTwoEngines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	k, err := trial.StartCluster(ctx, trial.ClusterConfig{Binary: millrace, Dir: folder(t), Engines: 2, EngineArgs: []string{"--speed=0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	tx := func(fn func(tx pgx.Tx) error) {
		t.Helper()
		if err := k.DB.InTx(ctx, db.System(), fn); err != nil {
			t.Fatal(err)
		}
	}
	p, d := placePair(t, k, tx)
	within(t, startLimit, "both engines have proved themselves", func() bool {
		live := k.Server.Hub.Live().Units
		return live[p].Load.State == fleet.StateReady && live[d].Load.State == fleet.StateReady
	})
	g, err := k.StartGateway(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = g.Stop(context.Background()) })
	prompt := strings.Repeat("carry the grain to the mill and the flour home ", 60)
	for i := range 6 {
		got := trial.Chat(ctx, g.URL, k.Shop.APIKey, trial.Ask{Model: k.Shop.ModelName, Prompt: prompt, MaxTokens: 30, Stream: i%2 == 0})
		if !got.Whole || got.Usage == nil || got.Usage.Completion != 30 || (i == 0) != (got.Usage.Details.Cached == 0) || got.Usage.Details.Cached >= got.Usage.Prompt {
			t.Fatalf("request %d: %d %v %+v %s", i, got.Status, got.Err, got.Usage, got.Text)
		}
		within(t, soon, "it is booked", func() bool { return legs(t, tx, got.Request, p, d) })
	}
	within(t, startLimit, "every token is explained", func() bool {
		code, said := command(t, []string{"DATABASE_URL=" + k.DatabaseURL()}, "reconcile")
		done := code == 0 && strings.Contains(said, "prompt computed for another engine") && strings.Contains(said, "decoded from another engine's cache")
		if !done {
			t.Log(said)
		}
		return done
	})
}

// placePair puts the unit's rows where a plan would, in the place of the whole engines.
func placePair(t *testing.T, k *trial.Cluster, tx func(func(pgx.Tx) error)) (p, d ids.ID) {
	t.Helper()
	p, d = ids.New(), ids.New()
	plan, parent, recipe, release := ids.New(), ids.New(), ids.New(), ids.New()
	spec := func(role string) string {
		s := engine.Spec{Executable: millrace, Context: 1 << 17, Role: role, Address: "127.0.0.1", Extra: []string{"--speed=0"},
			Transfer: &engine.Transfer{Backend: "nixl", Port: fabricPort(t), Engine: role + "-1"}}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tx(func(tx pgx.Tx) error {
		var hosts []ids.ID
		rows, err := tx.Query(t.Context(), `SELECT id FROM hosts ORDER BY name`)
		if err != nil {
			return err
		}
		if hosts, err = pgx.CollectRows(rows, pgx.RowTo[ids.ID]); err != nil {
			return err
		}
		var b pgx.Batch
		b.Queue(`INSERT INTO recipes (id, name, spec) VALUES ($1, 'pd', '{"transfer": {"backend": "nixl", "max_local_prompt": 64}}')`, recipe)
		b.Queue(`INSERT INTO releases (id, model_id, recipe_id, number, state) VALUES ($1, $2, $3, 99, 'serving')`, release, k.Shop.Model, recipe)
		b.Queue(`INSERT INTO plans (id, cause, body, demands, digest, state, created_by) VALUES ($1, 'operator', '{}', '{}', 'd', 'draft', 'test')`, plan)
		b.Queue(`INSERT INTO units (id, name, model_id, release_id, engine, upstream_model, parts, plan_id, state) VALUES ($1, 'pd', $2, $3, 'sim', 'sim', 2, $4, 'serving')`,
			parent, k.Shop.Model, release, plan)
		for i, part := range []struct {
			id   ids.ID
			role string
		}{{p, engine.Prefill}, {d, engine.Decode}} {
			b.Queue(`INSERT INTO units (id, name, model_id, release_id, engine, host_id, slot, upstream_model, part_of, role, spec, plan_id, state)
				VALUES ($1, $2, $3, $4, 'sim', $5, 1, 'sim', $6, $7, $8::jsonb, $9, 'serving')`, part.id, "pd/"+part.role, k.Shop.Model, release, hosts[i], parent, part.role, spec(part.role), plan)
		}
		// No plan wants the unit: whoever carries plans out would end it, so nobody may.
		b.Queue(`INSERT INTO control_leases (name, holder, term, expires_at) VALUES ('fleet', 'test', 1000, now() + interval '1 hour')
			ON CONFLICT (name) DO UPDATE SET holder = 'test', term = control_leases.term + 1000, expires_at = excluded.expires_at`)
		b.Queue(`UPDATE units SET wanted = 'stopped', generation = generation + 1 WHERE parts = 0 AND part_of IS NULL`)
		return tx.SendBatch(t.Context(), &b).Close()
	})
	return p, d
}

// legs reports whether a request is booked, with a leg at each engine.
func legs(t *testing.T, tx func(func(pgx.Tx) error), request, p, d ids.ID) (booked bool) {
	t.Helper()
	tx(func(tx pgx.Tx) error {
		var text []byte
		err := tx.QueryRow(t.Context(), `SELECT attempts FROM usage_events WHERE id = $1`, request).Scan(&text)
		if err == pgx.ErrNoRows {
			return nil
		}
		if err != nil {
			return err
		}
		booked = true
		var a []usage.Attempt
		if err := json.Unmarshal(text, &a); err != nil || len(a) != 2 || a[0].Leg != usage.LegPrefill || a[0].Unit != p || a[0].Prompt == 0 || a[1].Leg != usage.LegDecode || a[1].Unit != d {
			t.Errorf("attempts %s (%v)", text, err)
		}
		return nil
	})
	return booked
}
