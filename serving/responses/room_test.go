package responses_test

import (
	"context"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/gate/gatetest"
	dialect "millrace/serving/protocol/responses"
	"millrace/serving/responses"
)

const says = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"

// one number of a query.
func (w *world) number(sql string) (n int64) {
	w.t.Helper()
	if err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error { return tx.QueryRow(w.t.Context(), sql).Scan(&n) }); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// ask prepares and makes a response at the first gateway, and gives its object.
func (w *world) ask(body string) ([]byte, error) {
	w.t.Helper()
	req, err := dialect.Decode([]byte(body))
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := w.one.Prepare(w.t.Context(), responses.Call{ID: ids.New(), Caller: w.Caller, Request: req}, nil)
	if err != nil {
		return nil, err
	}
	ticket, err := w.Gate.Admit(w.t.Context(), p.Admission(w.one))
	if err != nil {
		return nil, err
	}
	out := httptest.NewRecorder()
	if err := ticket.Serve(w.t.Context(), out); err != nil {
		return nil, err
	}
	return out.Body.Bytes(), nil
}

func (w *world) good(body string) (object []byte) {
	w.t.Helper()
	object, err := w.ask(body)
	if err != nil {
		w.t.Fatal(err)
	}
	return object
}

const plain = `{"model":"` + gatetest.ModelName + `","input":"x"`

// What an organization keeps is counted to the byte, whatever is done with it, and is nothing once all of it is gone.
func TestWhatIsKeptIsCounted(t *testing.T) {
	w := newWorld(t, gatetest.NewEngine(t, gatetest.Stream(says)))
	const real = `SELECT (SELECT coalesce(sum(256 + octet_length(input) + octet_length(response)), 0) FROM responses) + (SELECT coalesce(sum(octet_length(events)), 0) FROM response_events)
		+ (SELECT coalesce(sum(256 + octet_length(metadata)), 0) FROM conversations) + (SELECT coalesce(sum(256 + octet_length(item)), 0) FROM conversation_items)`
	var c responses.Conversation
	var first []byte
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"a response", func() { first = w.good(plain + `}`) }},
		{"one in the background", func() {
			w.awaits(w.start(background+`,"stream":true}`), "completed")
			w.drain(patience) // its events are all there
		}},
		{"a conversation", func() {
			var err error
			c, err = w.two.CreateConversation(t.Context(), w.Caller, []byte(`{"a":"b"}`), []byte(`[{"role":"user","content":"x","id":"mine"},{"role":"user","content":"y"}]`))
			do(err)
		}},
		{"items of it, one of them again", func() {
			_, err := w.two.AddItems(t.Context(), w.Caller, c.ID, []byte(`[{"role":"user","content":"z"},{"role":"user","content":"x","id":"mine"}]`))
			do(err)
		}},
		{"a turn of it", func() { w.good(plain + `,"conversation":"` + c.ID + `"}`) }},
		{"an item less", func() { _, err := w.two.DeleteItem(t.Context(), w.Caller, c.ID, "mine"); do(err) }},
		{"a response less", func() { do(w.two.Delete(t.Context(), w.Caller, dialect.Text(dialect.Member(first, "id")))) }},
		{"a conversation less", func() { do(w.two.DeleteConversation(t.Context(), w.Caller, c.ID)) }},
		{"past their time", func() { w.clock.Advance(responses.Retention + time.Hour); do(w.two.Expire(t.Context())) }},
	} {
		step.do()
		if counted, there := w.number("SELECT sum(bytes)::bigint FROM kept_totals"), w.number(real); counted != there {
			t.Fatalf("%s: %d bytes are counted, %d are there", step.name, counted, there)
		}
	}
	if n := w.number(real); n != 0 {
		t.Fatalf("%d bytes are left", n)
	}
}

// Who keeps as much as he may is told so, before anything is made, where he asked for more to be kept; deleting makes room.
func TestAnOrganizationKeepsSoMuch(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(says))
	w := newWorld(t, e)
	first := dialect.Text(dialect.Member(w.good(plain+`}`), "id"))
	c, err := w.one.CreateConversation(t.Context(), w.Caller, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE kept_totals SET bytes = $1", int64(responses.MaxOrgBytes))
	refused := func(name string, err error) {
		t.Helper()
		if f := fault.Of(err); !fault.Is(err, fault.Invalid) || f.Code != "storage_limit_exceeded" || !strings.Contains(f.Message, "Delete some") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = w.one.Start(t.Context(), w.prepare(w.one, background+`}`))
	refused("in the background", err)
	_, err = w.one.AddItems(t.Context(), w.Caller, c.ID, []byte(`[{"role":"user","content":"`+strings.Repeat("x", 1000)+`"}]`))
	refused("items", err)
	_, err = w.one.CreateConversation(t.Context(), w.Caller, nil, []byte(`[{"role":"user","content":"`+strings.Repeat("x", 1000)+`"}]`))
	refused("a conversation", err)
	w.exec("UPDATE kept_totals SET bytes = bytes - 1000") // less than an answer may come to
	asked := e.Requests()
	for name, members := range map[string]string{"said": `,"store":true}`, "continued": `,"previous_response_id":"` + first + `"}`, "in a conversation": `,"conversation":"` + c.ID + `"}`} {
		_, err := w.ask(plain + members)
		refused(name, err)
	}
	if e.Requests() != asked {
		t.Error("an engine made what could not be kept")
	}
	if object := w.good(plain + `}`); string(dialect.Member(object, "store")) != "false" {
		t.Errorf("nobody asked for it to be kept: %s", object)
	}
	w.exec("UPDATE kept_totals SET bytes = bytes - 1100000")
	if object := w.good(plain + `,"store":true}`); string(dialect.Member(object, "store")) != "true" {
		t.Errorf("there is room again: %s", object)
	}
}

// A response can be read by others once its usage is safe, and not before.
func TestAResponseIsKeptOnceItsUsageIsSafe(t *testing.T) {
	for _, members := range []string{`}`, `,"stream":true}`} {
		w := newWorld(t, gatetest.NewEngine(t, gatetest.Stream(says)))
		w.Log.Stick(true)
		done := make(chan error, 1)
		go func() { _, err := w.ask(plain + members); done <- err }()
		for deadline := time.Now().Add(patience); len(w.Log.Events()) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no event")
			}
		}
		if n := w.count("responses"); n != 0 {
			t.Errorf("%s: it could be read before its usage was safe", members)
		}
		w.Log.Stick(false)
		if err := <-done; err != nil || w.count("responses") != 1 {
			t.Errorf("%s: %v, %d are kept", members, err, w.count("responses"))
		}
	}
}

// Who is over a limit, or has no credit, has nothing read for him.
func TestNothingIsReadForWhoIsOverHisLimits(t *testing.T) {
	w := newWorld(t, gatetest.NewEngine(t, gatetest.Stream(says)))
	object := w.good(plain + `}`)
	id, item := dialect.Text(dialect.Member(object, "id")), dialect.Text(dialect.Member(dialect.Elements(dialect.Member(object, "output"))[0], "id"))
	c, err := w.one.CreateConversation(t.Context(), w.Caller, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	bodies := []string{`{"model":"` + gatetest.ModelName + `","input":"x","previous_response_id":"` + id + `"}`, `{"model":"` + gatetest.ModelName + `","input":"x","conversation":"` + c.ID + `"}`,
		`{"model":"` + gatetest.ModelName + `","input":[{"type":"item_reference","id":"` + item + `"},{"role":"user","content":"x"}]}`}
	for _, body := range bodies {
		if _, err := w.ask(body); err != nil {
			t.Fatal(err)
		}
	}
	w.db.Close() // what reads fails from now on
	refused := func(kind fault.Kind) {
		t.Helper()
		for _, body := range bodies {
			if _, err := w.ask(body); !fault.Is(err, kind) {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
	w.Caller.Key, w.Caller.RPM = ids.New(), 1
	lease, err := w.Gate.Early(t.Context(), &w.Caller, gatetest.ModelName)
	if err != nil {
		t.Fatal(err)
	}
	lease.End()
	refused(fault.Limited)
	w.Caller.RPM = 0
	w.Budgets.Cap = w.Budgets.Settled()
	refused(fault.OutOfCredit)
}

// One organization cannot take every place of a gateway.
func TestPlacesOfAnOrganization(t *testing.T) {
	w := newWorld(t, gatetest.NewEngine(t, func(c net.Conn, _ int) bool { gatetest.Gone(c); return false }))
	const most = 128
	var id string
	for range most {
		id = w.start(background + `,"stream":true}`)
	}
	_, err := w.one.Start(t.Context(), w.prepare(w.one, background+`}`))
	if f := fault.Of(err); !fault.Is(err, fault.Limited) || f.Code != "background_limit_exceeded" || f.RetryAfter == 0 {
		t.Fatalf("one more: %v", err)
	}
	mine := w.Caller
	w.Caller.Org = ids.New()
	w.exec("INSERT INTO orgs (org_id, name) VALUES ($1, 'another')", w.Caller.Org)
	w.start(background + `}`) // others have places
	w.Caller = mine
	ctx, leave := context.WithCancel(t.Context())
	streams := make([]*stream, most)
	for i := range streams {
		streams[i] = newStream()
		go func() { streams[i].ended <- w.one.Follow(ctx, mine, id, -1, streams[i]) }()
		<-streams[i].began
	}
	if err := w.one.Follow(t.Context(), mine, id, -1, httptest.NewRecorder()); !fault.Is(err, fault.Limited) {
		t.Errorf("one stream more: %v", err)
	}
	leave()
	for _, s := range streams {
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	}
	ctx, leave = context.WithCancel(t.Context())
	last := newStream()
	go func() { <-last.began; leave() }()
	if err := w.one.Follow(ctx, mine, id, -1, last); err != nil {
		t.Errorf("after the others: %v", err)
	}
	w.drain(0)
}

// stream tells when it begins.
type stream struct {
	*httptest.ResponseRecorder
	began chan struct{}
	ended chan error
}

func newStream() *stream {
	return &stream{ResponseRecorder: httptest.NewRecorder(), began: make(chan struct{}), ended: make(chan error, 1)}
}

func (s *stream) WriteHeader(status int) {
	s.ResponseRecorder.WriteHeader(status)
	close(s.began)
}

// A conversation that does not fit is made shorter in the background, too, and stays the same response.
func TestTruncationInTheBackground(t *testing.T) {
	refuse := gatetest.Refuse(400, `{"error":{"message":"This model's maximum context length is 1000 tokens. However, your request has 2000 input tokens.","code":400}}`)
	e := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
		if n == 1 {
			return refuse(c, n)
		}
		return gatetest.Stream(says)(c, n)
	})
	w := newWorld(t, e)
	id := w.start(`{"model":"` + gatetest.ModelName + `","background":true,"stream":true,"truncation":"auto","input":[{"role":"user","content":"one one one one"},{"role":"assistant","content":"said"},{"role":"user","content":"two"}]}`)
	w.awaits(id, "completed")
	w.drain(patience)
	if _, sent := e.Last(); !strings.Contains(sent, "two") || strings.Contains(sent, "one one") {
		t.Fatalf("the engine got %s", sent)
	}
	out := httptest.NewRecorder()
	if err := w.two.Follow(t.Context(), w.Caller, id, -1, out); err != nil || strings.Count(out.Body.String(), `"type":"response.created"`) != 1 || !strings.Contains(out.Body.String(), id) {
		t.Fatalf("%v %s", err, out.Body)
	}
	list, err := w.two.InputItems(t.Context(), w.Caller, id, responses.Page{})
	if err != nil || len(list.Items) != 3 {
		t.Fatalf("%v: %d items of its input are kept", err, len(list.Items))
	}
	var charged []ids.ID
	for _, ev := range w.Log.Events() {
		if ev.Charge > 0 {
			charged = append(charged, ev.ID)
		}
	}
	if all := w.Log.Events(); len(all) != 2 || len(charged) != 1 || slices.Contains(charged, all[0].ID) {
		t.Fatalf("%d requests, %d were charged", len(all), len(charged))
	}
}
