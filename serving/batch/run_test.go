package batch_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/api/openai"
	"millrace/db"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/batch"
	"millrace/serving/engine"
	"millrace/serving/gate/gatetest"
	"millrace/tenants/keys"
)

var direct = gatetest.Options{Direct: true, Placed: true}

func TestABatchRuns(t *testing.T) {
	w := newWorld(t)
	s := gatetest.New(t, direct, gatetest.NewEngine(t, gatetest.Stream(said)))
	w.gateway(s, nil)
	b := w.create(requests(30) + request("too much", `,"max_tokens":9000,"user":"me"`) + "\r\n" + request(`ü"\u0000`, `,"store":true`))
	b = w.status(b.ID, batch.Completed)
	good, bad := w.answers(b.OutputFileID), w.answers(b.ErrorFileID)
	if b.Total != 32 || b.Completed != 31 || b.Failed != 1 || len(good) != 31 || len(bad) != 1 || b.InProgressAt == nil || b.FinalizingAt == nil || b.CompletedAt == nil || b.Model != gatetest.ModelName {
		t.Fatalf("%+v %d %d", b, len(good), len(bad))
	}
	if a := good["r7"]; a.Response.Status != 200 || a.Error != nil || !strings.Contains(string(a.Response.Body), `"content":"hi"`) || !strings.HasPrefix(a.ID, "batch_req_") {
		t.Errorf("%+v", a)
	}
	if a := bad["too much"]; a.Response.Status != 400 || a.Error != nil || !strings.Contains(string(a.Response.Body), `"param":"max_tokens"`) {
		t.Errorf("%+v", a)
	}
	if a := good[`ü"\u0000`]; a.Response == nil || !strings.Contains(a.Response.Warning, "store") {
		t.Errorf("what was ignored is not told: %+v", a)
	}
	var left int
	waitFor(t, "no line is left", func() bool {
		err := w.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), "SELECT count(*) FROM batch_lines").Scan(&left)
		})
		return err == nil && left == 0
	})
	events := s.Log.Events()
	if len(events) != 31 {
		t.Fatalf("%d events", len(events))
	}
	for _, e := range events {
		if e.Service != usage.Batch || e.Key != w.owner.Key || e.Org != w.owner.Org || e.Ending != usage.Complete || e.ID.Version() != 7 || e.Validate() != nil {
			t.Errorf("%+v", e)
		}
	}
}

// waitFor waits for something that a fake counts.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// hang answers the first n requests, and none of the others until the gate leaves.
func hang(n int) gatetest.Script {
	return func(c net.Conn, i int) bool {
		if i <= n {
			return gatetest.Stream(said)(c, i)
		}
		gatetest.Gone(c)
		return false
	}
}

// A gateway dies: another takes its batch over. What has a result does not run again, and what was in flight runs under the
// same id, so that it can be charged once only.
func TestADeadGatewaysBatchIsTakenOver(t *testing.T) {
	w := newWorld(t)
	first, second := gatetest.NewEngine(t, hang(3)), gatetest.NewEngine(t, gatetest.Stream(said))
	a := w.gateway(gatetest.New(t, direct, first), nil)
	b := w.create(requests(6))
	w.until(b.ID, "three done", func(b batch.Batch) bool { return b.Completed == 3 && first.Requests() == 6 })
	a.db.Close() // it neither renews its hold nor writes anything any more
	a.die()
	other := w.gateway(gatetest.New(t, direct, second), nil)
	b = w.status(b.ID, batch.Completed)
	good := w.answers(b.OutputFileID)
	if b.Completed != 6 || b.Failed != 0 || len(good) != 6 || second.Requests() != 3 {
		t.Fatalf("%+v, %d results, %d requests to the second", b, len(good), second.Requests())
	}
	charged := map[string]int{}
	for _, g := range []*gateway{a, other} {
		for _, e := range g.Log.Events() {
			if e.Charge > 0 {
				charged[strings.ReplaceAll(e.ID.String(), "-", "")]++
			}
		}
	}
	for id, r := range good {
		if charged[strings.TrimPrefix(r.Response.RequestID, "req_")] != 1 {
			t.Errorf("%s (%s) was charged %d times", id, r.Response.RequestID, charged[r.Response.RequestID])
		}
	}
	if len(charged) != 6 {
		t.Errorf("%d requests were charged", len(charged))
	}
	uncharged := map[string]bool{} // called off when the first one died: of the same ids as those that the second one ran
	for _, e := range a.Log.Events() {
		if e.Charge == 0 {
			uncharged[e.ID.String()] = true
		}
	}
	for _, e := range other.Log.Events() {
		if !uncharged[e.ID.String()] {
			t.Errorf("%s ran under another id before", e.ID)
		}
	}
}

// A gateway that hangs loses its hold. When it wakes up, it can write nothing.
func TestWhoLostABatchWritesNothing(t *testing.T) {
	w := newWorld(t)
	free := make(chan struct{})
	slow := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
		<-free
		return gatetest.Stream(said)(c, n)
	})
	a := w.gateway(gatetest.New(t, direct, slow), func(o *batch.Options) { o.Lease = time.Hour })
	b := w.create(requests(4))
	waitFor(t, "lines in flight", func() bool { return slow.Requests() == 4 })
	w.exec(`UPDATE batches SET lease_until = clock_timestamp() - interval '1 second'`)
	quick := gatetest.NewEngine(t, gatetest.Stream(said))
	a.runner.Rest()
	w.gateway(gatetest.New(t, direct, quick), nil)
	b = w.status(b.ID, batch.Completed)
	close(free)
	waitFor(t, "the late ones have ended", func() bool { return a.Gate.Running() == 0 && len(a.Log.Events()) == 4 })
	a.die()
	if now := w.status(b.ID, batch.Completed); now.Completed != 4 || len(w.answers(now.OutputFileID)) != 4 || quick.Requests() != 4 {
		t.Errorf("%+v", now)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error { _, err := tx.Exec(w.t.Context(), sql, args...); return err })
	if err != nil {
		w.t.Fatal(err)
	}
}

// A gateway that drains calls lines off, uncharged, and lets its batches go at once; the next attempt has another id.
func TestAGatewayThatDrainsLetsGo(t *testing.T) {
	w := newWorld(t)
	first := gatetest.NewEngine(t, hang(1))
	a := w.gateway(gatetest.New(t, direct, first), func(o *batch.Options) { o.Lease = time.Hour })
	b := w.create(requests(3))
	w.until(b.ID, "one done", func(b batch.Batch) bool { return b.Completed == 1 && first.Requests() == 3 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.runner.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if events := a.Log.Events(); len(events) != 3 || events[1].Charge != 0 || events[2].Charge != 0 {
		t.Errorf("%d events", len(events))
	}
	second := gatetest.NewEngine(t, gatetest.Stream(said))
	other := w.gateway(gatetest.New(t, direct, second), nil)
	w.status(b.ID, batch.Completed)
	seen := map[string]bool{}
	for _, g := range []*gateway{a, other} {
		for _, e := range g.Log.Events() {
			if seen[e.ID.String()] {
				t.Errorf("%s twice", e.ID)
			}
			seen[e.ID.String()] = true
		}
	}
}

// What ran before the end is kept; what never ran is told.
func TestCancelledAndExpired(t *testing.T) {
	for name, end := range map[string]func(w *world, b batch.Batch) (status, code string){
		"cancelled": func(w *world, b batch.Batch) (string, string) {
			got, err := w.store.Cancel(w.t.Context(), w.owner, b.ID)
			if err != nil || got.Status != batch.Cancelling || got.CancellingAt == nil {
				w.t.Errorf("%v %+v", err, got)
			}
			if _, err := w.store.Cancel(w.t.Context(), w.owner, b.ID); err != nil {
				w.t.Errorf("a second time: %v", err)
			}
			return batch.Cancelled, "batch_cancelled"
		},
		"expired": func(w *world, _ batch.Batch) (string, string) {
			w.clock.Advance(batch.Window)
			return batch.Expired, "batch_expired"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e := gatetest.NewEngine(t, hang(5))
			s := gatetest.New(t, direct, e)
			w.gateway(s, func(o *batch.Options) { o.Grace = 100 * time.Millisecond })
			b := w.create(requests(40))
			w.until(b.ID, "five done", func(b batch.Batch) bool { return b.Completed == 5 && e.Requests() > 5 })
			status, code := end(w, b)
			b = w.status(b.ID, status)
			good, bad := w.answers(b.OutputFileID), w.answers(b.ErrorFileID)
			if b.Total != 40 || b.Completed != 5 || len(good) != 5 || len(bad) != 35 || e.Requests() == 40 {
				t.Errorf("%+v: %d results, %d others", b, len(good), len(bad))
			}
			for _, a := range bad {
				if a.Response != nil || a.Error == nil || a.Error.Code != code {
					t.Errorf("%+v", a)
				}
			}
			charged := 0
			for _, ev := range s.Log.Events() {
				if ev.Charge > 0 {
					charged++
				}
			}
			if charged != 5 {
				t.Errorf("%d were charged", charged)
			}
			if _, err := w.store.Cancel(t.Context(), w.owner, b.ID); !fault.Is(err, fault.Conflict) {
				t.Errorf("cancelling what has ended: %v", err)
			}
		})
	}
}

// Without credit a batch is paused and says why; with credit it goes on. No line fails for it.
func TestNoCreditPausesABatch(t *testing.T) {
	w := newWorld(t)
	o := direct
	o.Cap = 1
	s := gatetest.New(t, o, gatetest.NewEngine(t, gatetest.Stream(said)))
	g := w.gateway(s, nil)
	b := w.create(requests(20))
	w.until(b.ID, "paused", func(b batch.Batch) bool {
		return b.Status == batch.InProgress && b.PauseCode == "insufficient_quota" && b.LeaseUntil == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := g.runner.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	o.Cap = 0
	w.gateway(gatetest.New(t, o, gatetest.NewEngine(t, gatetest.Stream(said))), nil)
	w.clock.Advance(time.Minute)
	if b = w.status(b.ID, batch.Completed); b.Completed != 20 || b.Failed != 0 || b.PauseCode != "" {
		t.Errorf("%+v", b)
	}
}

// The key that made the batch was revoked: its lines fail, and nothing reaches an engine.
func TestARevokedKeyFailsTheLines(t *testing.T) {
	w := newWorld(t)
	e := gatetest.NewEngine(t, gatetest.Stream(said))
	b := w.create(requests(12))
	if _, err := w.keys.Revoke(t.Context(), w.root, w.owner.Org, w.owner.Key); err != nil {
		t.Fatal(err)
	}
	w.gateway(gatetest.New(t, direct, e), nil)
	b = w.status(b.ID, batch.Completed)
	bad := w.answers(b.ErrorFileID)
	if b.Failed != 12 || b.OutputFileID != nil || len(bad) != 12 || e.Requests() != 0 || bad["r1"].Response.Status != 401 || !strings.Contains(string(bad["r1"].Response.Body), "api_key_revoked") {
		t.Errorf("%+v %+v", b, bad["r1"])
	}
}

// An engine that fails is tried again a few times, each under an id of its own; then the line fails.
func TestALineWhoseEngineFails(t *testing.T) {
	w := newWorld(t)
	e := gatetest.NewEngine(t, gatetest.Cut(said, 200)) // it breaks off behind its first word
	s := gatetest.New(t, direct, e)
	w.gateway(s, nil)
	b := w.create(requests(1))
	b = w.status(b.ID, batch.Completed)
	if a := w.answers(b.ErrorFileID)["r1"]; a.Response == nil || a.Response.Status != 502 {
		t.Errorf("%+v", a)
	}
	seen := map[string]bool{}
	for _, ev := range s.Log.Events() {
		seen[ev.ID.String()] = true
		if ev.Charge != 0 {
			t.Errorf("charged: %+v", ev)
		}
	}
	if len(seen) != 4 || len(s.Log.Events()) != 4 {
		t.Errorf("%d attempts of %d ids", len(s.Log.Events()), len(seen))
	}
}

// A request that makes a dialect panic fails by itself: the gateway lives, and so does the rest of the batch.
func TestALineThatMakesADialectPanic(t *testing.T) {
	w := newWorld(t)
	e := gatetest.NewEngine(t, gatetest.Stream(said))
	s := gatetest.New(t, direct, e)
	w.gateway(s, func(o *batch.Options) {
		evil := func(body []byte) {
			if bytes.Contains(body, []byte("seed")) {
				panic("evil")
			}
		}
		endpoints := openai.BatchEndpoints(nil)
		for i := range endpoints {
			check, prepare := endpoints[i].Check, endpoints[i].Prepare
			endpoints[i].Check = func(body []byte) (batch.Asked, error) { evil(body); return check(body) }
			endpoints[i].Prepare = func(ctx context.Context, id ids.ID, caller keys.Principal, body []byte) (batch.Prepared, error) {
				evil(body)
				return prepare(ctx, id, caller, body)
			}
		}
		o.Store = batch.New(w.db, w.clock, endpoints)
	})
	b := w.create(request("r1", "") + "\n" + request("r2", `,"seed":1`) + "\n" + request("r3", ""))
	b = w.status(b.ID, batch.Completed)
	if a := w.answers(b.ErrorFileID)["r2"]; b.Completed != 2 || b.Failed != 1 || a.Response == nil || a.Response.Status != 500 || bytes.Contains(a.Response.Body, []byte("evil")) {
		t.Errorf("%+v %+v", b, a.Response)
	}
}

// Where no engine ranks requests, lines wait while others do. Where engines rank, they serve lines last by themselves.
func TestLinesTakeWhatOthersLeave(t *testing.T) {
	for family, waits := range map[engine.Family]bool{engine.LlamaCpp: true, engine.VLLM: false} {
		w := newWorld(t)
		var running, most atomic.Int64
		e := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			return gatetest.Stream(said)(c, n)
		})
		o := direct
		o.Family = family
		g := w.gateway(gatetest.New(t, o, e), nil)
		g.spare.waiting.Store(3)
		b := w.create(requests(10))
		w.until(b.ID, "validated", func(b batch.Batch) bool { return b.Status != batch.Validating })
		if waits {
			waitFor(t, "three looks for room", func() bool { return g.spare.asked.Load() > 3 })
			if e.Requests() != 0 {
				t.Errorf("%s: a line started while others waited", family)
			}
			g.spare.waiting.Store(0)
		}
		if b = w.status(b.ID, batch.Completed); b.Completed != 10 || most.Load() > 16 {
			t.Errorf("%s: %+v, %d at once", family, b, most.Load())
		}
	}
}

// A gateway that the database left cannot write that it called lines off, so it does not: they end under the ids that they
// run under elsewhere, and whichever is booked first is paid.
func TestLinesOfALostBatchAreNotFree(t *testing.T) {
	w := newWorld(t)
	free := make(chan struct{})
	slow := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
		<-free
		return gatetest.Stream(said)(c, n)
	})
	a := w.gateway(gatetest.New(t, direct, slow), func(o *batch.Options) { o.Lease = 300 * time.Millisecond })
	b := w.create(requests(3))
	waitFor(t, "lines in flight", func() bool { return slow.Requests() == 3 })
	a.db.Close()
	other := w.gateway(gatetest.New(t, direct, gatetest.NewEngine(t, gatetest.Stream(said))), nil)
	w.status(b.ID, batch.Completed)
	close(free)
	waitFor(t, "the first one's lines have ended", func() bool { return len(a.Log.Events()) == 3 })
	ids := map[string]bool{}
	for _, e := range append(a.Log.Events(), other.Log.Events()...) {
		if ids[e.ID.String()] = true; e.Ending != usage.Complete || e.Charge == 0 {
			t.Errorf("%+v", e)
		}
	}
	if len(ids) != 3 || len(other.Log.Events()) != 3 {
		t.Errorf("%d ids, %d events", len(ids), len(other.Log.Events()))
	}
}

// A request that is wrong in itself gets its error as its result; the others run.
func TestOneWrongRequestAmongMany(t *testing.T) {
	w := newWorld(t)
	e := gatetest.NewEngine(t, gatetest.Stream(said))
	w.gateway(gatetest.New(t, direct, e), nil)
	b := w.status(w.create(request("a", `,"temperature":9`)+"\n"+request("b", "")).ID, batch.Completed)
	if b.Completed != 1 || b.Failed != 1 || e.Requests() != 1 || b.ErrorFileID == nil {
		t.Fatalf("%+v", b)
	}
	a, ok := w.answers(b.ErrorFileID)["a"]
	if body := string(a.Response.Body); !ok || a.Response.Status != 400 || !strings.Contains(body, `"param":"temperature"`) {
		t.Errorf("%+v %s", a, body)
	}
}

// A line that ran, and was charged, just before its gateway died is not told as never executed when its batch has ended
// meanwhile: it runs again under its id and its answer is handed over.
func TestWhatWasInFlightWhenABatchEndedIsHandedOver(t *testing.T) {
	for name, tt := range map[string]struct {
		end     func(w *world, id ids.ID)
		status  string
		engine  gatetest.Script // of the second gateway
		settled int
	}{
		"expired":         {func(w *world, _ ids.ID) { w.clock.Advance(batch.Window) }, batch.Expired, gatetest.Stream(said), 4},
		"cancelled":       {func(w *world, id ids.ID) { _, _ = w.store.Cancel(w.t.Context(), w.owner, id) }, batch.Cancelled, gatetest.Stream(said), 4},
		"without success": {func(w *world, _ ids.ID) { w.clock.Advance(batch.Window) }, batch.Expired, hang(0), 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			free := make(chan struct{})
			first := gatetest.NewEngine(t, func(c net.Conn, n int) bool { <-free; return gatetest.Stream(said)(c, n) })
			a := w.gateway(gatetest.New(t, direct, first), nil)
			b := w.create(requests(6))
			waitFor(t, "lines in flight", func() bool { return first.Requests() == 4 })
			a.db.Close() // it writes nothing any more
			close(free)
			waitFor(t, "lines that were charged", func() bool { return len(a.Log.Events()) == 4 })
			a.die()
			tt.end(w, b.ID)
			second := gatetest.NewEngine(t, tt.engine)
			other := w.gateway(gatetest.New(t, direct, second), func(o *batch.Options) {
				if tt.settled == 0 {
					o.Grace = 200 * time.Millisecond
				}
			})
			b = w.status(b.ID, tt.status)
			good, bad := w.answers(b.OutputFileID), w.answers(b.ErrorFileID)
			codes := map[string]int{}
			for _, l := range bad {
				codes[l.Error.Code]++
			}
			if len(good) != tt.settled || int(b.Completed) != tt.settled || codes["batch_"+tt.status] != 2 || codes["batch_interrupted"] != 4-tt.settled || len(bad) != 6-tt.settled {
				t.Fatalf("%+v: %d answers, others %v", b, len(good), codes)
			}
			ran := map[ids.ID]bool{}
			for _, e := range a.Log.Events() {
				ran[e.ID] = e.Charge > 0
			}
			for _, e := range other.Log.Events() {
				if !ran[e.ID] {
					t.Errorf("%s is another request than the one that was charged", e.ID)
				}
			}
		})
	}
}

// A line that may have been charged keeps its id when its engine fails: it is never charged under two.
func TestALineThatMayBeChargedKeepsItsID(t *testing.T) {
	w := newWorld(t)
	first := gatetest.NewEngine(t, hang(0))
	a := w.gateway(gatetest.New(t, direct, first), nil)
	b := w.create(requests(1))
	waitFor(t, "a line in flight", func() bool { return first.Requests() == 1 })
	a.db.Close()
	a.die()
	second := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
		if n <= 3 { // the gate's own tries
			return gatetest.Refuse(500, `{}`)(c, n)
		}
		return gatetest.Stream(said)(c, n)
	})
	other := w.gateway(gatetest.New(t, direct, second), nil)
	w.status(b.ID, batch.Completed)
	events := append(a.Log.Events(), other.Log.Events()...)
	if len(events) < 3 {
		t.Fatalf("%d events", len(events))
	}
	for _, e := range events {
		if e.ID != events[0].ID {
			t.Errorf("%s ran under another id before", e.ID)
		}
	}
}

// A batch for an endpoint that no gateway serves any more waits for one, and ends with its window or when it is cancelled.
func TestABatchWithoutAnEndpointEnds(t *testing.T) {
	for status, end := range map[string]func(w *world, id ids.ID){
		batch.Expired:   func(w *world, _ ids.ID) { w.clock.Advance(batch.Window) },
		batch.Cancelled: func(w *world, id ids.ID) { _, _ = w.store.Cancel(w.t.Context(), w.owner, id) },
	} {
		w := newWorld(t)
		b := w.create(requests(2))
		w.exec(`UPDATE batches SET endpoint = '/v1/gone'`)
		w.gateway(gatetest.New(t, direct), nil)
		w.until(b.ID, "paused", func(b batch.Batch) bool { return b.PauseCode == "endpoint_unavailable" })
		end(w, b.ID)
		w.status(b.ID, status)
	}
}
