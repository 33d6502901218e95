package hooks_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"millrace/api/hooks"
	"millrace/billing/inbox"
	"millrace/internal/fault"
)

type parser struct{ got string }

func (p *parser) Parse(body []byte, signature string) (inbox.Event, error) {
	p.got = string(body)
	if signature != "good" {
		return inbox.Event{}, fault.New(fault.Unauthenticated, "The signature is wrong.")
	}
	return inbox.Event{ID: "evt_1", Type: "x", Payload: body}, nil
}

type store struct {
	err    error
	stored []inbox.Event
}

func (s *store) Store(_ context.Context, _ inbox.Source, e inbox.Event) (bool, error) {
	if s.err != nil {
		return false, s.err
	}
	s.stored = append(s.stored, e)
	return true, nil
}

func TestWhatTheSenderIsAnswered(t *testing.T) {
	const body = "{\n \"id\": \"evt_1\" }\n"
	large := strings.Repeat("x", inbox.MaxPayload+1)
	for name, c := range map[string]struct {
		method, path, signature, body string
		store                         *store
		status, stored                int
	}{
		"a good event":           {"POST", hooks.StripePath, "good", body, &store{}, 200, 1},
		"a wrong signature":      {"POST", hooks.StripePath, "bad", body, &store{}, 401, 0},
		"no signature":           {"POST", hooks.StripePath, "", body, &store{}, 401, 0},
		"it could not be stored": {"POST", hooks.StripePath, "good", body, &store{err: errors.New("no database")}, 500, 0},
		"too large":              {"POST", hooks.StripePath, "good", large, &store{}, 413, 0},
		"a look":                 {"GET", hooks.StripePath, "good", "", &store{}, 405, 0},
		"another path":           {"POST", "/hooks/other", "good", body, &store{}, 404, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &parser{}
			r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
			r.Header.Set("Stripe-Signature", c.signature)
			w := httptest.NewRecorder()
			hooks.Handler(p, c.store).ServeHTTP(w, r)
			if w.Code != c.status || len(c.store.stored) != c.stored {
				t.Errorf("answered %d, stored %d", w.Code, len(c.store.stored))
			}
			if c.stored == 1 && (p.got != body || string(c.store.stored[0].Payload) != body) {
				t.Errorf("the body was changed: %q", p.got)
			}
			if strings.Contains(w.Body.String(), "no database") {
				t.Error("the cause reaches the sender")
			}
		})
	}
}

func TestWithoutAPaymentProviderNothingIsAccepted(t *testing.T) {
	s := &store{}
	w := httptest.NewRecorder()
	hooks.Handler(nil, s).ServeHTTP(w, httptest.NewRequest(http.MethodPost, hooks.StripePath, strings.NewReader("{}")))
	said, _ := io.ReadAll(w.Body)
	if w.Code != http.StatusServiceUnavailable || len(s.stored) != 0 || !strings.Contains(string(said), "not set up") {
		t.Errorf("%d %s", w.Code, said)
	}
}
