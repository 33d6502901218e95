package responses_test

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/api/problem"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/internal/usage"
	"millrace/serving/gate/gatetest"
	dialect "millrace/serving/protocol/responses"
	"millrace/serving/protocol/responses/responsestest"
	"millrace/serving/responses"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

const patience = 20 * time.Second

// world is two gateways' memories over one database.
type world struct {
	*gatetest.Stand
	t        *testing.T
	url      string
	db       *db.DB
	clock    *clock.Manual
	options  responses.Options
	one, two *responses.Service
}

func newWorld(t *testing.T, engines ...*gatetest.Engine) *world {
	t.Helper()
	w := &world{Stand: gatetest.New(t, gatetest.Options{Direct: true}, engines...), t: t, url: dbtest.URL(t), clock: clock.NewManual(time.Now().Truncate(time.Second))}
	var err error
	if w.db, err = db.Open(t.Context(), w.url, db.Options{MaxConns: 8}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.db.Close)
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	w.options = responses.Options{DB: w.db, Clock: w.clock, Gate: w.Gate, Sealer: master, Frame: problem.OpenAIFrame}
	w.one, w.two = responses.New(w.options), responses.New(w.options)
	w.exec("INSERT INTO orgs (org_id, name) VALUES ($1, 'one')", w.Caller.Org)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error { _, err := tx.Exec(w.t.Context(), sql, args...); return err }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(table string) (n int) {
	w.t.Helper()
	if err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(w.t.Context(), "SELECT count(*) FROM "+table).Scan(&n)
	}); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) prepare(s *responses.Service, body string) *responses.Prepared {
	w.t.Helper()
	req, err := dialect.Decode([]byte(body))
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := s.Prepare(w.t.Context(), responses.Call{ID: ids.New(), Caller: w.Caller, Request: req}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// start begins a response in the background at the first gateway.
func (w *world) start(body string) string {
	w.t.Helper()
	p := w.prepare(w.one, body)
	if _, err := w.one.Start(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	return ids.Format("resp", p.ID)
}

func (w *world) status(id string) string {
	w.t.Helper()
	object, err := w.two.Get(w.t.Context(), w.Caller, id)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := responsestest.Whole(object); err != nil {
		w.t.Fatalf("%v: %s", err, object)
	}
	return dialect.Text(dialect.Member(object, "status"))
}

func (w *world) awaits(id, status string) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); w.status(id) != status; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("it is %s, not %s", w.status(id), status)
		}
	}
}

// drain ends the first gateway's runs.
func (w *world) drain(within time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := w.one.Drain(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// endless is an engine that begins and says nothing more.
func endless(t *testing.T) *gatetest.Engine {
	return gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`+"\n\n"))
		gatetest.Gone(c)
		return false
	})
}

const background = `{"model":"` + gatetest.ModelName + `","input":"x","background":true`

// What another gateway cancelled or deleted is noticed by the next beat, and the engine is let go.
func TestARunIsEndedFromElsewhere(t *testing.T) {
	for name, act := range map[string]func(w *world, id string) error{
		"cancelled": func(w *world, id string) error { _, err := w.two.Cancel(w.t.Context(), w.Caller, id); return err },
		"deleted":   func(w *world, id string) error { return w.two.Delete(w.t.Context(), w.Caller, id) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, endless(t))
			id := w.start(background + `}`)
			w.awaits(id, "in_progress")
			if err := w.one.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := w.Gate.Running(); n != 1 {
				t.Fatalf("%d requests run", n)
			}
			if err := act(w, id); err != nil {
				t.Fatal(err)
			}
			if err := w.one.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.drain(patience)
			w.Event(t)
			if name == "cancelled" && w.status(id) != "cancelled" {
				t.Fatal(w.status(id))
			}
		})
	}
}

// A gateway that dies leaves nothing in progress: another one notices its silence.
func TestOrphansFail(t *testing.T) {
	w := newWorld(t, endless(t))
	id := w.start(background + `,"stream":true}`)
	w.awaits(id, "in_progress")
	w.exec("UPDATE responses SET owner = $1", ids.New()) // as if its process were another one, of which nothing is heard
	w.clock.Advance(time.Hour)                           // a process whose clock is wrong gives nobody up
	if err := w.two.Rescue(t.Context()); err != nil || w.status(id) != "in_progress" {
		t.Fatalf("given up too soon: %v, %s", err, w.status(id))
	}
	w.exec("UPDATE responses SET alive_at = alive_at - interval '1 minute'")
	if err := w.two.Rescue(t.Context()); err != nil || w.status(id) != "failed" {
		t.Fatalf("%v, %s", err, w.status(id))
	}
	stream := httptest.NewRecorder()
	if err := w.two.Follow(t.Context(), w.Caller, id, -1, stream); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stream.Body.String(), `"type":"response.failed"`) {
		t.Fatal(stream.Body)
	}
	w.drain(0)
	if w.status(id) != "failed" {
		t.Fatal("what had ended changed again")
	}
}

// A process keeps alive what it makes, not what it began once and could neither make nor end: the answer to a commit was lost.
func TestWhatNobodyMakesIsGivenUp(t *testing.T) {
	w := newWorld(t, endless(t))
	id, lost := w.start(background+`}`), ids.New()
	w.awaits(id, "in_progress")
	w.exec(`INSERT INTO responses (org_id, id, project_id, created_at, expires_at, status, input, response, background, streamed, owner, alive_at)
		SELECT org_id, $1, project_id, created_at, expires_at, 'queued', input, response, background, streamed, owner, alive_at FROM responses`, lost)
	w.exec("UPDATE responses SET alive_at = alive_at - interval '1 minute'")
	if err := w.one.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.two.Rescue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if made, gone := w.status(id), w.status(ids.Format("resp", lost)); made != "in_progress" || gone != "failed" {
		t.Fatalf("what is made is %s, what nobody makes is %s", made, gone)
	}
	w.drain(0)
}

// What ends because the gateway does is not paid: its customer got nothing.
func TestDrainWaitsAndThenCuts(t *testing.T) {
	began := make(chan struct{})
	w := newWorld(t, gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.SendTaken(c, gatetest.StreamHead, gatetest.Chunk(`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`+"\n\n"))
		close(began)
		gatetest.Gone(c)
		return false
	}))
	id := w.start(background + `}`)
	<-began
	w.drain(10 * time.Millisecond)
	object, err := w.two.Get(t.Context(), w.Caller, id)
	if err != nil || w.status(id) != "failed" || !strings.Contains(string(object), "has shut down") {
		t.Fatalf("%v %s", err, object)
	}
	if e := w.Event(t); e.Ending != usage.FailedUnbilled || e.Charge != 0 {
		t.Fatalf("%+v", e)
	}
	if _, err := w.one.Start(t.Context(), w.prepare(w.one, background+`}`)); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("a run began after the drain: %v", err)
	}
}

func TestWhatIsKeptExpires(t *testing.T) {
	w := newWorld(t, gatetest.NewEngine(t, gatetest.Stream("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")))
	id := w.start(background + `,"stream":true}`)
	w.awaits(id, "completed")
	w.drain(patience)
	c, err := w.one.CreateConversation(t.Context(), w.Caller, nil, []byte(`[{"role":"user","content":"x"}]`))
	if err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(responses.Retention - time.Hour)
	if err := w.one.Expire(t.Context()); err != nil || w.status(id) != "completed" {
		t.Fatal(err)
	}
	if _, err := w.one.AddItems(t.Context(), w.Caller, c.ID, []byte(`[{"role":"user","content":"y"}]`)); err != nil { // it is used
		t.Fatal(err)
	}
	w.clock.Advance(2 * time.Hour)
	if _, err := w.two.Get(t.Context(), w.Caller, id); !fault.Is(err, fault.NotFound) {
		t.Fatalf("past its time it is still found: %v", err)
	}
	if err := w.one.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, e, c, i := w.count("responses"), w.count("response_events"), w.count("conversations"), w.count("conversation_items"); r != 0 || e != 0 || c != 1 || i != 2 {
		t.Fatalf("%d responses, %d runs of events, %d conversations, %d items are left", r, e, c, i)
	}
	w.clock.Advance(responses.Retention)
	if err := w.one.Expire(t.Context()); err != nil || w.count("conversations") != 0 || w.count("conversation_items") != 0 {
		t.Fatal("a conversation that nobody used is left", err)
	}
}

// Row-level security holds even where a query forgot the organization.
func TestOtherOrganizationsSeeNothing(t *testing.T) {
	w := newWorld(t, gatetest.NewEngine(t, gatetest.Stream("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")))
	w.awaits(w.start(background+`,"stream":true}`), "completed")
	w.drain(patience)
	if _, err := w.one.CreateConversation(t.Context(), w.Caller, nil, []byte(`[{"role":"user","content":"x"}]`)); err != nil {
		t.Fatal(err)
	}
	err := w.db.InTx(t.Context(), db.Org(ids.New()), func(tx pgx.Tx) error {
		for _, table := range []string{"responses", "response_events", "conversations", "conversation_items"} {
			var n int
			if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d rows, %v", table, n, err)
			}
			if w.count(table) == 0 {
				t.Errorf("%s is empty", table)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
