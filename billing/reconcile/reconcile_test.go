package reconcile_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/reconcile"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

// A request that several engines served is billed once: the prompt by the engine that computed it, the answer by those that
// generated it. What the journals say beyond that has its class.
func TestEnginesThatShareARequest(t *testing.T) {
	w := newWorld(t)
	pair, torn := w.event(w.placed, 50, usage.Complete), w.event(w.placed, 40, usage.Complete)
	leg := func(l usage.Leg, prompt, generated int64) usage.Attempt {
		return usage.Attempt{ID: ids.New(), Unit: w.placed, Leg: l, Prompt: prompt, Generated: generated}
	}
	pair.Attempts = []usage.Attempt{leg(usage.LegEncode, 0, 0), leg(usage.LegPrefill, 100, 0), leg(usage.LegDecode, 0, 0)}
	torn.Attempts = []usage.Attempt{leg(usage.LegPrefill, 100, 0), leg(usage.LegReplay, 0, 15), leg(usage.LegPrefill, 0, 0), leg(usage.LegDecode, 0, 0)}
	w.write(pair, torn)
	for i, tokens := range [][2]int64{{30, 1}, {100, 1}, {100, 50}} {
		w.journal(pair.Attempts[i].ID, "serve", tokens[0], tokens[1], "complete")
	}
	for i, tokens := range [][2]int64{{100, 1}, {100, 17}, {115, 1}, {115, 25}} {
		w.journal(torn.Attempts[i].ID, "serve", tokens[0], tokens[1], "complete")
	}
	r := w.run()
	if r.Unexplained {
		t.Fatalf("unexplained:\n%s", text(t, r))
	}
	for _, want := range []struct {
		name, class string
		left, right int64
	}{
		{"prompt tokens", "prompt computed for another engine", 200, 200}, {"prompt tokens", "decoded from another engine's cache", 215, 0},
		{"generated tokens", "prompt computed for another engine", 2, 0}, {"generated tokens", "decoded from another engine's cache", 75, 75},
		{"generated tokens", "begun by an engine that failed, continued by another", 17, 15}, {"prompt tokens", "image encoded for another engine", 30, 0},
		{"prompt tokens", "abandoned attempt", 115, 0}, {"prompt tokens", "", 660, 200}, {"generated tokens", "", 96, 90},
	} {
		if l := find(r, want.name, want.class); l.Left != want.left || l.Right != want.right || !l.Explained {
			t.Errorf("%s, %s: %+v", want.name, want.class, l)
		}
	}
	w.exec(`UPDATE attempt_journal SET generated = 49 WHERE attempt_id = $1`, pair.Attempts[2].ID)
	if r := w.run(); !r.Unexplained {
		t.Error("a token that no engine generated was billed, and nobody noticed")
	}
	w.exec(`UPDATE attempt_journal SET generated = 50 WHERE attempt_id = $1`, pair.Attempts[2].ID)
	w.exec(`UPDATE attempt_journal SET prompt = 120 WHERE attempt_id = $1`, pair.Attempts[1].ID)
	if r := w.run(); !r.Unexplained {
		t.Error("a prompt was billed otherwise than it was computed, and nobody noticed")
	}
}

func TestEveryDifferenceHasItsClass(t *testing.T) {
	w := newWorld(t)
	whole, cut, retried := w.event(w.placed, 50, usage.Complete), w.event(w.placed, 20, usage.ClientLeft), w.event(w.placed, 30, usage.Complete)
	abandoned := usage.Attempt{ID: ids.New(), Unit: w.placed, Note: "refused"}
	retried.Attempts = append([]usage.Attempt{abandoned}, retried.Attempts...)
	foreign, mad := w.event(w.attached, 70, usage.Complete), w.event(w.placed, 10, usage.Complete)
	mad.Usage[usage.Input] = -1
	running := w.event(w.placed, 15, usage.GatewayDied)
	running.Progress, running.ID = 1, ids.New()
	w.write(whole, cut, retried, foreign, mad, running)
	last := func(e *usage.Event) ids.ID { return e.Attempts[len(e.Attempts)-1].ID }
	w.journal(last(whole), "serve", 100, 50, "complete")
	w.journal(last(cut), "serve", 100, 28, "caller_left")
	w.journal(last(retried), "serve", 100, 30, "complete")
	w.journal(abandoned.ID, "serve", 100, 3, "engine_failed")
	w.journal(last(mad), "serve", 100, 10, "complete")
	w.journal(last(running), "serve", 100, 16, "open")
	w.journal(ids.New(), "probe", 5, 1, "complete")
	w.journal(ids.New(), "golden", 7, 2, "complete")
	r := w.run()
	if r.Unexplained || !r.Rated {
		t.Fatalf("unexplained:\n%s", text(t, r))
	}
	for class, want := range map[string][2]int64{ // by journal, by events
		"billed": {80, 80}, "generated but not delivered": {28, 20}, "abandoned attempt": {3, 0}, "in quarantine": {10, 0},
		"open": {16, 0}, "probe": {1, 0}, "golden": {2, 0}, "attached engine": {0, 70}, "": {140, 170},
	} {
		if l := find(r, "generated tokens", class); l.Left != want[0] || l.Right != want[1] || !l.Explained {
			t.Errorf("generated, class %q: %+v, want %v", class, l, want)
		}
	}
	if l := find(r, "prompt tokens", ""); l.Left != 612 || l.Right != 400 || l.Difference != 212 {
		t.Errorf("prompt: %+v", l)
	}
	for _, name := range []string{"rollups: charged", "ledger: charged", "balances: settled", "balances: credit that is left", "rollups: output tokens", "ledger: revenue"} {
		if l := find(r, name, ""); l.Left == 0 || l.Left != l.Right || l.Difference != 0 {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if l := find(r, "ledger: money at the payment provider", ""); l.Left != 0 || l.Right != 0 || !l.Explained {
		t.Errorf("%+v", l)
	}
}

func TestTokensThatNothingExplains(t *testing.T) {
	for name, c := range map[string]struct {
		event   *usage.Ending
		journal []int64 // prompt, generated
		class   string
		left    int64
		right   int64
	}{
		"billed above the journal": {ending(usage.Complete), []int64{100, 40}, "billed above the journal", 0, 10},
		"cut and still above":      {ending(usage.ClientLeft), []int64{100, 40}, "billed above the journal", 0, 10},
		"less billed than whole":   {ending(usage.Complete), []int64{100, 60}, "billed", 60, 50},
		"no journal":               {ending(usage.Complete), nil, "no journal", 0, 50},
		"no event":                 {nil, []int64{100, 33}, "no event", 33, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.exec("UPDATE gateway_epochs SET started_at = now()") // no gateway that ran then can have lost anything
			attempt := ids.New()
			if c.event != nil {
				e := w.event(w.placed, 50, *c.event)
				attempt = e.Attempts[0].ID
				w.write(e)
			}
			if c.journal != nil {
				w.journal(attempt, "serve", c.journal[0], c.journal[1], "complete")
			}
			r := w.run()
			l := find(r, "generated tokens", c.class)
			if l.Left != c.left || l.Right != c.right || l.Explained || !r.Unexplained || r.UnexplainedTokens == 0 {
				t.Fatalf("%+v in\n%s", l, text(t, r))
			}
		})
	}
}

func ending(e usage.Ending) *usage.Ending { return &e }

func TestWhatADeadGatewayTookWithIt(t *testing.T) {
	w := newWorld(t)
	w.journal(ids.New(), "serve", 100, 12, "caller_left")
	w.exec("UPDATE gateway_epochs SET dead_at = now(), fenced_at = now()")
	w.exec("UPDATE allotments SET returned_nano = allotted_nano")
	w.exec("UPDATE budgets SET outstanding_nano = 0")
	r := w.run()
	if l := find(r, "generated tokens", "lost with a gateway"); r.Unexplained || l.Left != 12 {
		t.Fatalf("%+v in\n%s", l, text(t, r))
	}
	w.exec("UPDATE gateway_epochs SET goodbye_at = now()") // it left in order: then it lost nothing
	if r := w.run(); !r.Unexplained {
		t.Fatalf("explained by a gateway that left in order:\n%s", text(t, r))
	}
}

// Each tampering must be seen, by the right line.
func TestTamperingIsSeen(t *testing.T) {
	for name, sql := range map[string]string{
		"rollups: charged":                                "UPDATE usage_rollups SET charged_nano = charged_nano + 1",
		"rollups: requests":                               "UPDATE usage_rollups SET key_id = gen_random_uuid()",
		"balances: settled":                               "UPDATE budgets SET settled_nano = settled_nano - 1, cap_nano = cap_nano - 1",
		"balances: credit that is left":                   "UPDATE budgets SET cap_nano = cap_nano + 1",
		"outstanding is what allotments hold":             "UPDATE budgets SET outstanding_nano = outstanding_nano + 1",
		"allotments of fenced epochs that hold something": "UPDATE gateway_epochs SET fenced_at = now()",
		"balances that are not their entries":             "UPDATE ledger_balances SET amount_nano = amount_nano + 1 WHERE account = 'revenue'",
		"ledger: charged": `WITH t AS (INSERT INTO ledger_txns (org_id, day, id, kind) SELECT org_id, day, gen_random_uuid(), 'usage' FROM ledger_txns LIMIT 1 RETURNING *)
			INSERT INTO ledger_entries SELECT org_id, day, id, unnest(ARRAY['receivable', 'revenue']), unnest(ARRAY[5, -5]) FROM t`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			e := w.event(w.placed, 50, usage.Complete)
			w.write(e)
			w.journal(e.Attempts[0].ID, "serve", 100, 50, "complete")
			if r := w.run(); r.Unexplained {
				t.Fatalf("before:\n%s", text(t, r))
			}
			w.exec(sql)
			r := w.run()
			if l := find(r, name, ""); l.Explained || l.Difference == 0 || !r.Unexplained {
				t.Fatalf("%+v in\n%s", l, text(t, r))
			}
		})
	}
}

// What is still on its way is waited for.
func TestARecordThatArrivesLateIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	e := w.event(w.placed, 50, usage.Complete)
	w.write(e)
	look := &asked{}
	r, err := reconcile.Run(t.Context(), reconcile.Config{DB: w.db, Bus: w.bus, Clock: look, Settle: time.Nanosecond})
	if err != nil || !r.Unexplained {
		t.Fatalf("one look does not miss the record: %v\n%s", err, text(t, r))
	}
	late := &asked{at: look.times, do: func() { w.journal(e.Attempts[0].ID, "serve", 100, 50, "complete") }}
	if r, err = reconcile.Run(t.Context(), reconcile.Config{DB: w.db, Bus: w.bus, Clock: late, Settle: patience}); err != nil || r.Unexplained {
		t.Fatalf("%v\n%s", err, text(t, r))
	}
}

// asked is a clock that does something when it is asked a certain time.
type asked struct {
	times, at int
	do        func()
}

func (a *asked) Now() time.Time {
	if a.times++; a.times == a.at {
		a.do()
	}
	return clock.System.Now()
}

func TestARaterThatStandsStillLowersTheWatermark(t *testing.T) {
	w := newWorld(t)
	first := w.event(w.placed, 50, usage.Complete)
	w.write(first)
	w.journal(first.Attempts[0].ID, "serve", 100, 50, "complete")
	w.run()
	w.stop()
	w.write(w.event(w.placed, 60, usage.Complete))
	r, err := reconcile.Run(t.Context(), reconcile.Config{DB: w.db, Bus: w.bus, Clock: clock.System, Wait: time.Nanosecond, Settle: time.Nanosecond})
	if err != nil || r.Rated || !r.Watermark.Before(r.At) {
		t.Fatalf("%v %+v", err, r)
	}
}

func TestTheReportIsStoredAsItIsShown(t *testing.T) {
	w := newWorld(t)
	w.write(w.event(w.attached, 50, usage.Complete))
	r := w.run()
	var stored []byte
	w.in(func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), "SELECT report FROM reconcile_runs").Scan(&stored)
	})
	again, err := reconcile.Parse(stored)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(r)
	b, _ := json.Marshal(again)
	if !bytes.Equal(a, b) || len(r.Lines) == 0 {
		t.Fatalf("%s\nstored as\n%s", a, b)
	}
	if out := text(t, r); !strings.Contains(out, "no independent source") || !strings.Contains(out, "Every difference is explained.") {
		t.Fatal(out)
	}
}

func text(t *testing.T, r *reconcile.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
