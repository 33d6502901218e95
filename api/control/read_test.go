package control

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"millrace/internal/fault"
)

func TestAFieldThatIsGivenTwiceIsNamed(t *testing.T) {
	for body, twice := range map[string]string{
		`{"name":"a","project_id":"p","name":"b"}`:                                                 "name",
		`{"name":"a","project_id":"p","project_id":"p"}`:                                           "project_id",
		`{"project_id":"p","name":"a","n\u0061me":"b"}`:                                            "name",
		`{"project_id":"p","name":"a","limits":{"requests_per_minute":1,"requests_per_minute":2}}`: "limits.requests_per_minute",
		`{"project_id":"p","name":"a","limits":{"requests_per_minute":1,"REQUESTS_PER_MINUTE":2}}`: "limits.REQUESTS_PER_MINUTE",
		`{"project_id":"p","name":"a","limits":{}}`:                                                "",
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		var in NewKey
		err := readBody(httptest.NewRecorder(), r, &in)
		if twice == "" && err != nil || twice != "" && (fault.Of(err).Code != "duplicate_field" || fault.Of(err).Param != twice || !strings.Contains(fault.Of(err).Message, twice)) {
			t.Errorf("%s: %v, want that %q is given twice", body, err, twice)
		}
	}
	for path, want := range map[string]string{`[{"a":1},{"a":2}]`: "", `[{"b":[{"a":1,"a":2}]}]`: "b.a", `1`: "", `{}`: ""} {
		if got := twice(json.NewDecoder(strings.NewReader(path)), ""); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

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
