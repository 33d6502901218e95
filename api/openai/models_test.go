package openai_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/api/inference"
	"millrace/api/openai"
	"millrace/internal/clock"
	"millrace/serving/catalogue"
	"millrace/serving/gate/gatetest"
)

// shelf is a list of models in its order.
type shelf []*catalogue.Model

func (s shelf) Models() []*catalogue.Model { return s }

func (s shelf) Model(name string) (*catalogue.Model, bool) {
	for _, m := range s {
		if m.Name == name {
			return m, true
		}
	}
	return nil, false
}

// listed puts so many models before a client.
func listed(t *testing.T, n int) *stand {
	t.Helper()
	s := gatetest.New(t, gatetest.Options{Direct: true})
	var models shelf
	for i := range n {
		models = append(models, &catalogue.Model{Name: fmt.Sprintf("acme/%02d", i), DisplayName: "Acme", Context: 100, MaxOutput: 50, Created: time.Unix(1_700_000_000, 5)})
	}
	e := echo.New()
	(&openai.API{Gate: s.Gate, Door: inference.Door{Auth: keyring{s.Caller}, Clock: clock.System}, Models: models, Prices: pricelist{}}).Register(e)
	return &stand{Stand: s, url: gatetest.Serve(t, e), t: t}
}

// Both APIs' clients read one list: OpenAI's all of it, Anthropic's by pages.
func TestModelsOfBothAPIs(t *testing.T) {
	s := listed(t, 25)
	for _, tt := range []struct {
		query     string
		anthropic bool
		want      string // first to last of how many, and whether there are more
	}{
		{"", false, "00 24 25 false"}, {"", true, "00 19 20 true"}, {"?limit=1000", true, "00 24 25 false"},
		{"?limit=3", true, "00 02 3 true"}, {"?limit=3&after_id=acme/02", true, "03 05 3 true"}, {"?limit=3&after_id=acme%2F23", true, "24 24 1 false"},
		{"?limit=3&before_id=acme/24", true, "21 23 3 true"}, {"?limit=3&before_id=acme/02", true, "00 01 2 false"}, {"?after_id=acme/24", true, "- - 0 false"},
		{"?limit=2", false, "00 01 2 true"}, {"?limit=0", true, "limit"}, {"?limit=x", true, "limit"}, {"?after_id=none", true, "after_id"},
		{"?after_id=acme/01&before_id=acme/03", true, "before_id"},
	} {
		version := ""
		if tt.anthropic {
			version = "2023-06-01"
		}
		answer, body := s.do("GET", "/v1/models"+tt.query, "", "Anthropic-Version", version)
		var got struct {
			Object string
			Data   []struct{ ID, Object, Type string }
			More   bool    `json:"has_more"`
			First  *string `json:"first_id"`
			Last   *string `json:"last_id"`
			Error  struct{ Message string }
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode == 400 {
			if !strings.HasPrefix(got.Error.Message, tt.want+": ") {
				t.Errorf("%s: %s", tt.query, body)
			}
			continue
		}
		end := func(id *string) string {
			if id == nil {
				return "-"
			}
			return strings.TrimPrefix(*id, "acme/")
		}
		if line := fmt.Sprint(end(got.First), " ", end(got.Last), " ", len(got.Data), " ", got.More); line != tt.want || got.Object != "list" {
			t.Errorf("%s, Anthropic %v: %s, want %s", tt.query, tt.anthropic, line, tt.want)
		}
		if (answer.Header.Get("Request-Id") != "") != tt.anthropic {
			t.Errorf("%s: %v", tt.query, answer.Header)
		}
	}
	_, body := s.do("GET", "/v1/models/acme/07", "")
	for _, want := range []string{`"id":"acme/07"`, `"object":"model"`, `"created":1700000000`, `"type":"model"`, `"display_name":"Acme"`,
		`"created_at":"2023-11-14T22:13:20Z"`, `"lifecycle":"active"`, `"max_input_tokens":100`, `"max_tokens":50`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %s: %s", want, body)
		}
	}
	if answer, body := s.do("GET", "/v1/models/none", "", "Anthropic-Version", "2023-06-01"); answer.StatusCode != 404 || !strings.HasPrefix(string(body), `{"type":"error","error":{"type":"not_found_error"`) {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
	if answer, body := s.do("DELETE", "/v1/models", "", "Anthropic-Version", "2023-06-01"); answer.StatusCode != 405 || !strings.HasPrefix(string(body), `{"type":"error"`) {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}
