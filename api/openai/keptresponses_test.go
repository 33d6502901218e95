package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"millrace/api/inference"
	"millrace/api/openai"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol/responses/responsestest"
	"millrace/tenants/keys"
)

// patience is for what must happen, however busy the machine is.
const patience = 20 * time.Second

// people are keys by name.
type people map[string]keys.Principal

func (p people) Authenticate(_ context.Context, key string) (keys.Principal, error) {
	if caller, known := p[key]; known {
		return caller, nil
	}
	return keyring{}.Authenticate(context.Background(), "unknown")
}

// newKept puts the API with a database before engines. Three keys: the usual one, one of another project, one of another
// organization.
func newKept(t *testing.T, family engine.Family, engines ...*gatetest.Engine) *stand {
	t.Helper()
	s := gatetest.New(t, gatetest.Options{Direct: true, Family: family}, engines...)
	d := dbtest.New(t)
	project, org := s.Caller, s.Caller
	project.Project, org.Org, org.Project = ids.New(), ids.New(), ids.New()
	err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO orgs (org_id, name) VALUES ($1, 'one'), ($2, 'two')", s.Caller.Org, org.Org)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	memory := kept(d, s)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = memory.Run(ctx); close(ended) }()
	api := &openai.API{Gate: s.Gate, Door: inference.Door{Auth: people{goodKey: s.Caller, "mk_project": project, "mk_org": org}, Clock: clock.System}, Models: s.Models,
		Prices: pricelist{}, Responses: memory}
	api.Register(e)
	url := gatetest.Serve(t, e)
	t.Cleanup(func() {
		drain, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		if err := api.Drain(drain); err != nil {
			t.Error(err)
		}
		if err := memory.Drain(drain); err != nil {
			t.Error(err)
		}
		cancel()
		<-ended
	})
	return &stand{Stand: s, url: url, t: t, api: api}
}

// good sends a request that must succeed, and decodes the answer.
func (s *stand) good(method, path, body string) (answer map[string]any) {
	s.t.Helper()
	got, text := s.do(method, path, body)
	if got.StatusCode != 200 || json.Unmarshal(text, &answer) != nil {
		s.t.Fatalf("%s %s: %d %s", method, path, got.StatusCode, text)
	}
	return answer
}

// bad sends a request that must fail, and gives the error's code.
func (s *stand) bad(status int, method, path, body string, header ...string) string {
	s.t.Helper()
	got, text := s.do(method, path, body, header...)
	var answer struct{ Error struct{ Code string } }
	if got.StatusCode != status || json.Unmarshal(text, &answer) != nil {
		s.t.Fatalf("%s %s: %d %s, want %d", method, path, got.StatusCode, text, status)
	}
	return answer.Error.Code
}

// says is an engine's stream with a text.
func says(text string) string {
	return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`, text) + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}` + "\n\ndata: [DONE]\n\n"
}

func messages(t *testing.T, e *gatetest.Engine) string {
	t.Helper()
	_, body := e.Last()
	var sent struct{ Messages json.RawMessage }
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err)
	}
	return string(sent.Messages)
}

func TestResponsesAreKeptAndContinued(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(says("Hello.")))
	s := newKept(t, engine.VLLM, e)
	first := s.good("POST", "/v1/responses", `{"model":"acme/test","instructions":"not carried over","input":"one","metadata":{"a":"b"}}`)
	id := first["id"].(string)
	_, streamed := s.do("POST", "/v1/responses", `{"model":"acme/test","input":[{"role":"user","content":"two"}],"stream":true,"previous_response_id":"`+id+`"}`)
	second, err := responsestest.Check(streamed)
	if err != nil || second.Response["previous_response_id"] != id || second.Response["store"] != true {
		t.Fatalf("%v %s", err, streamed)
	}
	third := s.good("POST", "/v1/responses", `{"model":"acme/test","input":"three","previous_response_id":"`+second.Response["id"].(string)+`"}`)
	if got := messages(t, e); got != `[{"role":"user","content":"one"},{"role":"assistant","content":"Hello."},{"role":"user","content":"two"},{"role":"assistant","content":"Hello."},{"role":"user","content":"three"}]` {
		t.Fatal(got)
	}
	if got := s.good("GET", "/v1/responses/"+id, ""); fmt.Sprint(got) != fmt.Sprint(first) {
		t.Fatalf("kept %v, told %v", got, first)
	}
	item := third["output"].([]any)[0].(map[string]any)["id"].(string)
	s.good("POST", "/v1/responses", `{"model":"acme/test","input":[{"type":"item_reference","id":"`+item+`"},{"role":"user","content":"four"}]}`)
	if got := messages(t, e); got != `[{"role":"assistant","content":"Hello."},{"role":"user","content":"four"}]` {
		t.Fatal(got)
	}
	for _, key := range []string{"mk_project", "mk_org"} { // for everybody else it does not exist
		header := []string{"Authorization", "Bearer " + key}
		for _, r := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/cancel"}, {"GET", "/input_items"}} {
			if code := s.bad(404, r[0], "/v1/responses/"+id+r[1], "", header...); code != "response_not_found" {
				t.Errorf("%v: %s", r, code)
			}
		}
		if code := s.bad(404, "POST", "/v1/responses", `{"model":"acme/test","input":"x","previous_response_id":"`+id+`"}`, header...); code != "previous_response_not_found" {
			t.Error(code)
		}
		if code := s.bad(404, "POST", "/v1/responses", `{"model":"acme/test","input":[{"type":"item_reference","id":"`+item+`"}]}`, header...); code != "item_not_found" {
			t.Error(code)
		}
	}
	if got := s.good("DELETE", "/v1/responses/"+id, ""); got["deleted"] != true {
		t.Fatal(got)
	}
	s.bad(404, "GET", "/v1/responses/"+id, "")
	if code := s.bad(404, "POST", "/v1/responses", `{"model":"acme/test","input":"x","previous_response_id":"`+third["id"].(string)+`"}`); code != "previous_response_not_found" {
		t.Errorf("a chain with a link that is gone: %s", code)
	}
}

func TestWhatIsNotToBeStoredIsNot(t *testing.T) {
	s := newKept(t, engine.Sim, simulated(t))
	got := s.good("POST", "/v1/responses", ask+`,"store":false}`)
	if got["store"] != false {
		t.Fatal(got)
	}
	s.bad(404, "GET", "/v1/responses/"+got["id"].(string), "")
	if code := s.bad(404, "POST", "/v1/responses", ask+`,"previous_response_id":"`+got["id"].(string)+`"}`); code != "previous_response_not_found" {
		t.Error(code)
	}
}

func TestInputItemsHavePages(t *testing.T) {
	s := newKept(t, engine.Sim, simulated(t))
	got := s.good("POST", "/v1/responses", `{"model":"acme/test","input":[{"role":"user","content":"a"},{"type":"message","id":"msg_mine","role":"assistant","content":"b"},{"role":"user","content":[{"type":"input_text","text":"c"}]}]}`)
	path := "/v1/responses/" + got["id"].(string) + "/input_items"
	list := s.good("GET", path+"?limit=2", "")
	items := list["data"].([]any)
	last := items[1].(map[string]any)
	if len(items) != 2 || list["has_more"] != true || last["id"] != "msg_mine" || list["last_id"] != "msg_mine" || list["first_id"] == "" || last["type"] != "message" || last["status"] != "completed" {
		t.Fatal(list)
	}
	list = s.good("GET", path+"?after=msg_mine", "")
	if text := fmt.Sprint(list["data"]); !strings.Contains(text, "input_text") || !strings.Contains(text, "text:a") || list["has_more"] != false {
		t.Fatal(list)
	}
	if list = s.good("GET", path+"?order=asc&limit=1", ""); !strings.Contains(fmt.Sprint(list["data"]), "text:a") {
		t.Fatal(list)
	}
	for _, query := range []string{"?limit=0", "?limit=101", "?order=up"} {
		s.bad(400, "GET", path+query, "")
	}
	s.bad(404, "GET", path+"?after=msg_nobody", "")
}

func TestInputTokensAreCounted(t *testing.T) {
	s := newKept(t, engine.Sim, simulated(t))
	short := s.good("POST", "/v1/responses/input_tokens", `{"model":"acme/test","input":"one two three"}`)
	made := s.good("POST", "/v1/responses", `{"model":"acme/test","input":"one two three","max_output_tokens":1}`)
	if short["object"] != "response.input_tokens" || short["input_tokens"] != made["usage"].(map[string]any)["input_tokens"] {
		t.Fatalf("counted %v, used %v", short, made["usage"])
	}
	long := s.good("POST", "/v1/responses/input_tokens", `{"model":"acme/test","input":"and","previous_response_id":"`+made["id"].(string)+`"}`)
	if long["input_tokens"].(float64) <= short["input_tokens"].(float64) {
		t.Fatal(long)
	}
	s.bad(404, "POST", "/v1/responses/input_tokens", `{"model":"nobody/knows","input":"x"}`)
}

func TestConversations(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(says("Hello.")))
	s := newKept(t, engine.VLLM, e)
	c := s.good("POST", "/v1/conversations", `{"metadata":{"topic":"x"},"items":[{"type":"message","role":"user","content":"zero"}]}`)
	id := c["id"].(string)
	path := "/v1/conversations/" + id
	first := s.good("POST", "/v1/responses", `{"model":"acme/test","input":"one","conversation":"`+id+`"}`)
	if first["conversation"].(map[string]any)["id"] != id {
		t.Fatal(first)
	}
	s.good("POST", "/v1/responses", `{"model":"acme/test","input":"two","store":false,"conversation":{"id":"`+id+`"}}`)
	if got := messages(t, e); got != `[{"role":"user","content":"zero"},{"role":"user","content":"one"},{"role":"assistant","content":"Hello."},{"role":"user","content":"two"}]` {
		t.Fatal(got)
	}
	s.bad(400, "POST", path+"/items", "{\"items\":[{\"role\":\"user\",\"content\":\"\xff\"}]}")
	list := s.good("GET", path+"/items?order=asc", "")
	if n := len(list["data"].([]any)); n != 5 || list["has_more"] != false {
		t.Fatalf("%d items: %v", n, list)
	}
	newest := s.good("GET", path+"/items?limit=1", "")
	item := newest["first_id"].(string)
	if newest["has_more"] != true || item != list["last_id"] {
		t.Fatal(newest)
	}
	if got := s.good("GET", path+"/items/"+item, ""); got["role"] != "assistant" {
		t.Fatal(got)
	}
	s.good("DELETE", path+"/items/"+item, "")
	s.bad(404, "GET", path+"/items/"+item, "")
	added := s.good("POST", path+"/items", `{"items":[{"type":"message","role":"user","content":"late"},{"type":"function_call_output","call_id":"c","output":"x"}]}`)
	if n := len(added["data"].([]any)); n != 2 {
		t.Fatal(added)
	}
	if got := s.good("POST", path, `{"metadata":{"topic":"y"}}`); got["metadata"].(map[string]any)["topic"] != "y" {
		t.Fatal(got)
	}
	for _, key := range []string{"mk_project", "mk_org"} {
		header := []string{"Authorization", "Bearer " + key}
		for _, r := range [][3]string{{"GET", path, ""}, {"DELETE", path, ""}, {"POST", path, `{"metadata":{}}`}, {"GET", path + "/items", ""}, {"POST", path + "/items", `{"items":[{"role":"user","content":"x"}]}`},
			{"GET", path + "/items/" + list["first_id"].(string), ""}, {"DELETE", path + "/items/" + list["first_id"].(string), ""}, {"POST", "/v1/responses", `{"model":"acme/test","input":"x","conversation":"` + id + `"}`}} {
			if code := s.bad(404, r[0], r[1], r[2], header...); code != "conversation_not_found" {
				t.Errorf("%v: %s", r, code)
			}
		}
	}
	if got := s.good("DELETE", path, ""); got["object"] != "conversation.deleted" {
		t.Fatal(got)
	}
	s.bad(404, "GET", path, "")
	s.bad(405, "PUT", path, "")
	s.bad(400, "POST", "/v1/conversations", `{"items":[{"type":"magic"}]}`)
}

func TestCompaction(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(says("They agreed on \"slate\".")))
	s := newKept(t, engine.VLLM, e)
	got := s.good("POST", "/v1/responses/compact", `{"model":"acme/test","prompt_cache_key":"k","input":[{"role":"user","content":"The word is slate."},{"role":"assistant","content":"OK."}]}`)
	output := got["output"].([]any)
	if got["object"] != "response.compaction" || got["usage"].(map[string]any)["total_tokens"] != 6.0 || output[0].(map[string]any)["type"] != "compaction" {
		t.Fatal(got)
	}
	if sent := messages(t, e); !strings.Contains(sent, "The word is slate.") || !strings.Contains(sent, "Summarize our conversation") {
		t.Fatal(sent)
	}
	items, _ := json.Marshal(append(output, map[string]any{"role": "user", "content": "Which word?"}))
	s.good("POST", "/v1/responses", `{"model":"acme/test","store":false,"input":`+string(items)+`}`)
	if sent := messages(t, e); !strings.Contains(sent, `They agreed on \"slate\".`) || !strings.Contains(sent, "Which word?") {
		t.Fatal(sent)
	}
	if got, text := s.do("POST", "/v1/responses", `{"model":"acme/test","store":false,"input":`+string(items)+`}`, "Authorization", "Bearer mk_org"); got.StatusCode != 400 || !bytes.Contains(text, []byte("invalid_encrypted_content")) {
		t.Fatalf("another organization reads it: %d %s", got.StatusCode, text)
	}
	s.bad(400, "POST", "/v1/responses/compact", `{"input":"x"}`)
}

// ---- WebSockets ----------------------------------------------------------------------------------------------------

type client struct {
	t    *testing.T
	conn *websocket.Conn
}

func (s *stand) dial(key string) *client {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	conn, answer, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(s.url, "http")+"/v1/responses", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
	if err != nil {
		s.t.Fatalf("%v %+v", err, answer)
	}
	conn.SetReadLimit(1 << 20)
	s.t.Cleanup(func() { conn.CloseNow() })
	return &client{s.t, conn}
}

// ask sends an event and reads the answer: a response, or the code of an error.
func (c *client) ask(event string) (*responsestest.Answer, string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.conn.Write(ctx, websocket.MessageText, []byte(event)); err != nil {
		c.t.Fatal(err)
	}
	var events []json.RawMessage
	for {
		_, text, err := c.conn.Read(ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		var head struct {
			Type   string
			Status int
			Error  struct{ Code string }
		}
		if err := json.Unmarshal(text, &head); err != nil {
			c.t.Fatalf("%v: %s", err, text)
		}
		if head.Type == "error" && head.Status != 0 {
			return nil, head.Error.Code
		}
		events = append(events, text)
		if head.Type == "response.completed" || head.Type == "response.incomplete" || head.Type == "response.failed" {
			answer, err := responsestest.Events(events...)
			if err != nil {
				c.t.Fatal(err)
			}
			return answer, ""
		}
	}
}

const createEvent = `{"type":"response.create","model":"acme/test","store":false,`

func TestWebSocket(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(says("OK.")))
	s := newKept(t, engine.VLLM, e)
	c := s.dial(goodKey)
	first, _ := c.ask(createEvent + `"input":"The word is cobalt."}`)
	id := first.Response["id"].(string)
	second, _ := c.ask(createEvent + `"input":"Which word?","previous_response_id":"` + id + `"}`)
	if sent := messages(t, e); sent != `[{"role":"user","content":"The word is cobalt."},{"role":"assistant","content":"OK."},{"role":"user","content":"Which word?"}]` || second.Response["previous_response_id"] != id {
		t.Fatal(sent)
	}
	if _, code := c.ask(createEvent + `"input":"x","previous_response_id":"` + id + `"}`); code != "previous_response_not_found" {
		t.Fatalf("only the latest is remembered: %s", code)
	}
	third, _ := c.ask(createEvent + `"input":"again"}`)
	id = third.Response["id"].(string)
	if _, code := c.ask(createEvent + `"input":[{"type":"function_call_output","call_id":"none","output":"x"}],"previous_response_id":"` + id + `"}`); code == "" {
		t.Fatal("an output without a call was taken")
	}
	if _, code := c.ask(createEvent + `"input":"x","previous_response_id":"` + id + `"}`); code != "previous_response_not_found" {
		t.Fatalf("after a continuation that failed: %s", code)
	}
	before := e.Requests()
	warm, _ := c.ask(createEvent + `"generate":false,"instructions":"i","input":"first"}`)
	if e.Requests() != before || warm.Status != "completed" || len(warm.Items) != 0 {
		t.Fatalf("%+v", warm)
	}
	c.ask(createEvent + `"input":"second","previous_response_id":"` + warm.Response["id"].(string) + `"}`)
	if sent := messages(t, e); sent != `[{"role":"user","content":"first"},{"role":"user","content":"second"}]` {
		t.Fatal(sent)
	}
	for event, want := range map[string]string{`{"type":"response.stop"}`: "unknown_event", `[]`: "invalid_json", `{"type":"response.create","model":"nobody/knows","input":"x"}`: "model_not_found"} {
		if _, code := c.ask(event); code != want {
			t.Errorf("%s: %s, want %s", event, code, want)
		}
	}
	stored, _ := c.ask(`{"type":"response.create","model":"acme/test","input":"keep"}`)
	s.good("GET", "/v1/responses/"+stored.Response["id"].(string), "")
	other := s.dial("mk_org")
	if _, code := other.ask(`{"type":"response.create","model":"acme/test","input":"x","previous_response_id":"` + stored.Response["id"].(string) + `"}`); code != "previous_response_not_found" {
		t.Fatal(code)
	}
}

// A gateway that is told to stop ends sockets that are idle, lets the others end their answer, and takes no new ones.
func TestSocketsEndWithTheGateway(t *testing.T) {
	e, end := held(t)
	s := newKept(t, engine.VLLM, e)
	idle, busy := s.dial(goodKey), s.dial(goodKey)
	answered := make(chan *responsestest.Answer, 1)
	go func() {
		answer, _ := busy.ask(createEvent + `"input":"x"}`)
		answered <- answer
	}()
	for deadline := time.Now().Add(patience); s.Gate.Running() == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	drained := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		drained <- s.api.Drain(ctx)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, _, err := idle.conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Fatalf("an idle socket: %v", err)
	}
	if code := s.bad(503, "GET", "/v1/responses", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="); code != "shutting_down" {
		t.Error(code)
	}
	end()
	if answer := <-answered; answer == nil || answer.Status != "completed" {
		t.Fatalf("the answer that ran: %+v", answer)
	}
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
}

// What is prepared and not generated takes a request from the key's limits, like any other.
func TestWarmingTakesFromTheLimits(t *testing.T) {
	s := newKept(t, engine.VLLM, gatetest.NewEngine(t, gatetest.Stream(says("OK."))))
	limited := s.Caller
	limited.Key, limited.RPM = ids.New(), 1
	s.api.Door.Auth.(people)["mk_limited"] = limited
	c := s.dial("mk_limited")
	if _, code := c.ask(createEvent + `"generate":false,"input":"x"}`); code != "" {
		t.Fatal(code)
	}
	if _, code := c.ask(createEvent + `"generate":false,"input":"x"}`); code != "rate_limit_exceeded" {
		t.Fatalf("a second one in the minute: %q", code)
	}
}

// One organization cannot take all the places.
func TestSocketsOfAnOrganizationHaveALimit(t *testing.T) {
	s := newKept(t, engine.VLLM, gatetest.NewEngine(t, gatetest.Stream(says("OK."))))
	for range 64 {
		s.dial(goodKey)
	}
	handshake := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	if code := s.bad(429, "GET", "/v1/responses", "", handshake...); code != "websocket_limit_exceeded" {
		t.Error(code)
	}
	s.dial("mk_org")
}

// What a client sends ahead has a limit, in bytes too.
func TestRequestsThatWaitHaveALimit(t *testing.T) {
	e, end := held(t)
	defer end()
	s := newKept(t, engine.VLLM, e)
	busy := s.dial(goodKey)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	large := createEvent + `"input":"` + strings.Repeat("x", 20<<20) + `"}`
	for i, event := range []string{createEvent + `"input":"x"}`, large, large} {
		if err := busy.conn.Write(ctx, websocket.MessageText, []byte(event)); err != nil {
			t.Fatal(i, err)
		}
		for deadline := time.Now().Add(patience); s.Gate.Running() == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		}
	}
	for {
		_, _, err := busy.conn.Read(ctx)
		if err == nil {
			continue
		}
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Fatalf("40 MiB wait: %v", err)
		}
		break
	}
}

// A conversation that does not fit is made shorter over a WebSocket, too.
func TestTruncationOverAWebSocket(t *testing.T) {
	refuse := gatetest.Refuse(400, `{"error":{"message":"This model's maximum context length is 1000 tokens. However, your request has 2000 input tokens.","code":400}}`)
	e := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
		if n%2 == 1 {
			return refuse(c, n)
		}
		return gatetest.Stream(says("Fits."))(c, n)
	})
	c := newKept(t, engine.VLLM, e).dial(goodKey)
	const long = `"input":[{"role":"user","content":"one one one one"},{"role":"assistant","content":"said"},{"role":"user","content":"two"}]`
	got, code := c.ask(createEvent + long + `,"truncation":"auto"}`)
	if code != "" || got.Status != "completed" || messages(t, e) != `[{"role":"user","content":"two"}]` {
		t.Fatalf("%s; the engine got %s", code, messages(t, e))
	}
	if _, code := c.ask(createEvent + long + `}`); code != "context_length_exceeded" {
		t.Fatal(code)
	}
}

// What the database cannot be asked for is not there; what it cannot keep is refused.
func TestIdsThatNoDatabaseKnows(t *testing.T) {
	s := newKept(t, engine.VLLM, gatetest.NewEngine(t, gatetest.Stream(says("OK."))))
	conversation := "/v1/conversations/" + s.good("POST", "/v1/conversations", `{}`)["id"].(string)
	response := "/v1/responses/" + s.good("POST", "/v1/responses", `{"model":"acme/test","input":"x"}`)["id"].(string)
	for _, odd := range []string{"%00", "a%00b", "%ff", strings.Repeat("a", 5000)} {
		for _, path := range []string{"/v1/responses/resp_" + odd, "/v1/conversations/conv_" + odd, conversation + "/items/" + odd, conversation + "/items?after=" + odd, response + "/input_items?after=" + odd} {
			s.bad(404, "GET", path, "")
		}
		s.bad(404, "DELETE", conversation+"/items/"+odd, "")
		s.bad(404, "DELETE", "/v1/responses/resp_"+odd, "")
		s.bad(404, "POST", "/v1/responses/resp_"+odd+"/cancel", "")
	}
	for _, odd := range []string{`a\u0000b`, strings.Repeat("a", 5000)} {
		for path, body := range map[string]string{"/v1/conversations": `{"items":[%s]}`, conversation + "/items": `{"items":[%s]}`, "/v1/responses": `{"model":"acme/test","input":[%s]}`} {
			s.bad(400, "POST", path, fmt.Sprintf(body, `{"role":"user","content":"x","id":"`+odd+`"}`))
		}
		s.bad(400, "POST", "/v1/responses", `{"model":"acme/test","input":"x","previous_response_id":"`+odd+strings.Repeat("a", 300)+`"}`)
	}
	s.bad(404, "POST", "/v1/responses", `{"model":"acme/test","input":"x","previous_response_id":"a\u0000b"}`)
	s.bad(404, "POST", "/v1/responses", `{"model":"acme/test","input":"x","conversation":"a\u0000b"}`)
	s.bad(404, "POST", "/v1/responses", `{"model":"acme/test","input":[{"type":"item_reference","id":"a\u0000b"}]}`)
	s.good("POST", "/v1/conversations", `{"metadata":{"a":"\u0000"},"items":[{"role":"user","content":"\u0000"}]}`) // texts may hold it
}

// What is kept can be asked for so often a minute by one organization.
func TestVisitsHaveALimit(t *testing.T) {
	s := newKept(t, engine.VLLM)
	const most = 6000
	for n := 0; ; n++ {
		answer, body := s.do("GET", "/v1/responses/none", "")
		if answer.StatusCode == 429 {
			if wait := answer.Header.Get("Retry-After"); n < most || wait == "" || !strings.Contains(string(body), "rate_limit_exceeded") {
				t.Fatalf("after %d, to come again in %s: %s", n, wait, body)
			}
			break
		}
		if answer.StatusCode != 404 || n > 10*most {
			t.Fatalf("%d: %d %s", n, answer.StatusCode, body)
		}
	}
	for _, path := range []string{"/v1/files", "/v1/batches/none", "/v1/conversations/none/items"} {
		if got, body := s.do("GET", path, ""); got.StatusCode != 429 {
			t.Errorf("%s: %d %s", path, got.StatusCode, body)
		}
	}
	s.bad(404, "GET", "/v1/responses/none", "", "Authorization", "Bearer mk_org") // of another organization
}
