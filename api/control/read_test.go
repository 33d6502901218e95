package control

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// What is accepted says only what the struct knows, so nothing that a caller sent was ignored.
func FuzzReadBody(f *testing.F) {
	f.Add(`{"name":"k","project_id":"proj_1","limits":{"rpm":1},"expires_at":"2027-01-01T00:00:00Z"}`)
	f.Add(`{"name":"k","project_id":"p","NAME":"x"}`)
	f.Add(`{"name":null,"project_id":1}`)
	f.Add(`null`)
	f.Add(`[{}]`)
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		var in NewKey
		if readBody(httptest.NewRecorder(), r, &in) != nil {
			return
		}
		var sent map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &sent); err != nil {
			t.Fatalf("accepted %q: %v", body, err)
		}
		for name := range sent {
			switch name {
			case "name", "project_id", "expires_at", "limits":
			default:
				t.Fatalf("accepted %q with the unknown field %q", body, name)
			}
		}
		if sent["name"] == nil || sent["project_id"] == nil {
			t.Fatalf("accepted %q without an obligatory field", body)
		}
	})
}
