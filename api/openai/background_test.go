package openai_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/serving/engine"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol/responses/responsestest"
)

const later = `{"model":"acme/test","input":"take your time","background":true`

// held is an engine that begins an answer and ends it when told.
func held(t *testing.T) (e *gatetest.Engine, end func()) {
	ended := make(chan struct{})
	text := says("Done.")
	cut := strings.Index(text, "\n\n") + 2
	e = gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(text[:cut]))
		gone := make(chan struct{})
		go func() { gatetest.Gone(c); close(gone) }()
		select {
		case <-ended:
			gatetest.Send(c, gatetest.Chunk(text[cut:]), "0\r\n\r\n")
		case <-gone:
		}
		return false
	})
	return e, func() { close(ended) }
}

// awaits polls a response until it has a status.
func (s *stand) awaits(id, status string) map[string]any {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		got := s.good("GET", "/v1/responses/"+id, "")
		if got["status"] == status {
			return got
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("it never was %s: %v", status, got)
		}
	}
}

func TestBackground(t *testing.T) {
	e, end := held(t)
	s := newKept(t, engine.VLLM, e)
	got := s.good("POST", "/v1/responses", later+`}`)
	id := got["id"].(string)
	if got["status"] != "queued" || got["background"] != true {
		t.Fatal(got)
	}
	s.awaits(id, "in_progress")
	if code := s.bad(400, "POST", "/v1/responses", `{"model":"acme/test","input":"x","previous_response_id":"`+id+`"}`); code != "" {
		t.Error(code)
	}
	end()
	s.awaits(id, "completed")
	answer, body := s.do("GET", "/v1/responses/"+id, "")
	whole, err := responsestest.Whole(body)
	if err != nil || answer.StatusCode != 200 || whole.Items[0].Text != "Done." || whole.Usage.Total != 6 {
		t.Fatalf("%v %s", err, body)
	}
	if got := s.good("POST", "/v1/responses/"+id+"/cancel", ""); got["status"] != "completed" {
		t.Fatal(got)
	}
	s.bad(400, "GET", "/v1/responses/"+id+"?stream=true", "")
	if e := s.Event(t); e.Status != 200 || e.Dialect != "responses" {
		t.Fatalf("%+v", e)
	}
}

func TestBackgroundIsCancelled(t *testing.T) {
	e, _ := held(t)
	s := newKept(t, engine.VLLM, e)
	id := s.good("POST", "/v1/responses", later+`}`)["id"].(string)
	s.awaits(id, "in_progress")
	header := []string{"Authorization", "Bearer mk_org"}
	s.bad(404, "POST", "/v1/responses/"+id+"/cancel", "", header...)
	if got := s.good("POST", "/v1/responses/"+id+"/cancel", ""); got["status"] != "cancelled" {
		t.Fatal(got)
	}
	s.Event(t) // the engine is let go, and the request accounted for
	s.awaits(id, "cancelled")
	foreground := s.good("POST", "/v1/conversations", `{}`)
	s.bad(404, "POST", "/v1/responses/"+foreground["id"].(string)+"/cancel", "")
}

// A stream that its client leaves goes on, and can be taken up after any event, twice the same.
func TestABackgroundStreamIsTakenUp(t *testing.T) {
	e, end := held(t)
	s := newKept(t, engine.VLLM, e)
	req, err := http.NewRequest("POST", s.url+"/v1/responses", strings.NewReader(later+`,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+goodKey)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	id := ""
	for id == "" && lines.Scan() {
		if data, found := strings.CutPrefix(lines.Text(), "data: "); found {
			var event struct{ Response struct{ ID string } }
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				t.Fatal(err)
			}
			id = event.Response.ID
		}
	}
	answer.Body.Close() // the client leaves
	end()
	s.awaits(id, "completed")
	_, all := s.do("GET", "/v1/responses/"+id+"?stream=true", "")
	got, err := responsestest.Check(all)
	if err != nil || got.Items[0].Text != "Done." {
		t.Fatalf("%v %s", err, all)
	}
	for after := range len(got.Types) {
		_, rest := s.do("GET", fmt.Sprintf("/v1/responses/%s?stream=true&starting_after=%d", id, after), "")
		if n := strings.Count(string(rest), "event: "); n != len(got.Types)-1-after || !strings.HasSuffix(string(all), string(rest)) {
			t.Fatalf("after %d: %d events of %d:\n%s", after, n, len(got.Types), rest)
		}
	}
	s.bad(400, "GET", "/v1/responses/"+id+"?stream=true&starting_after=-1", "")
	s.bad(404, "GET", "/v1/responses/"+id+"?stream=true", "", "Authorization", "Bearer mk_project")
}

func TestABackgroundResponseFails(t *testing.T) {
	s := newKept(t, engine.VLLM, gatetest.NewEngine(t, gatetest.Refuse(500, `{"error":{"message":"Traceback"}}`)))
	id := s.good("POST", "/v1/responses", later+`}`)["id"].(string)
	got := s.awaits(id, "failed")
	if got["error"].(map[string]any)["code"] != "server_error" || strings.Contains(fmt.Sprint(got), "Traceback") {
		t.Fatal(got)
	}
	_, body := s.do("POST", "/v1/responses", later+`,"stream":true}`)
	if got, err := responsestest.Check(body); err != nil || got.Status != "failed" {
		t.Fatalf("%v %s", err, body)
	}
	s.bad(404, "POST", "/v1/responses", strings.Replace(later, "acme/test", "nobody/knows", 1)+`}`)
}
