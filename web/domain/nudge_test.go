package domain_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/web/domain"
	"millrace/web/live"
	"millrace/web/session"
)

// someone is an Auth that knows one person.
type someone struct{ v session.Viewer }

func (s someone) Lookup(context.Context, string) (session.Viewer, error) { return s.v, nil }
func (someone) SignOut(context.Context, string) error                    { return nil }
func (someone) RequestLink(context.Context, string, session.Client) error {
	return nil
}
func (someone) Exchange(context.Context, string, session.Client) (session.Session, error) {
	return session.Session{}, nil
}

// listen opens the pages' stream as someone, and gives what it says.
func listen(t *testing.T, pages *live.Hub, v session.Viewer) <-chan string {
	t.Helper()
	e := echo.New()
	guard := session.New(session.Options{Auth: someone{v}, Clock: clock.System})
	e.Use(guard.Middleware()...)
	pages.Register(e.Group(""), guard.Alive)
	server := httptest.NewServer(e)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "millrace_session", Value: "x"})
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	said, ended := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				said <- event
			}
		}
	}()
	t.Cleanup(func() {
		pages.Close()
		resp.Body.Close()
		<-ended
		server.Close()
	})
	return said
}

func TestNudge(t *testing.T) {
	b, pages, c := dbtest.Bus(t), live.NewHub(), clock.NewManual(begin)
	stop, err := domain.Nudge(b, b, pages, c)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	org, other := ids.New(), ids.New()
	member := listen(t, pages, session.Viewer{User: ids.New(), Org: org, Role: string(tenants.Owner)})
	operator := listen(t, pages, session.Viewer{User: ids.New(), Operator: true})
	for deadline := time.Now().Add(patience); pages.Streams() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the streams did not open")
		}
	}
	expect := func(who <-chan string, name string, want ...string) {
		t.Helper()
		for missing := len(want); missing > 0; missing-- {
			select {
			case got := <-who:
				found := false
				for i, w := range want {
					if w == got {
						want[i], found = "", true
						break
					}
				}
				if !found {
					t.Errorf("%s hears %q, want one of %q", name, got, want)
				}
			case <-time.After(patience):
				t.Fatalf("%s hears nothing more, want %q", name, want)
			}
		}
	}
	publish := func(subject, data string) {
		t.Helper()
		if err := b.Publish(subject, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	// What is another's, or says nothing of whose it is, reaches nobody: the next message is the first that is heard.
	publish(bus.LivePrefix+hex.EncodeToString(other[:]), "")
	publish(bus.NoticeBudget, ids.Format(ids.Org, other))
	publish(bus.NoticeKey, hex.EncodeToString(make([]byte, 32)))
	publish(bus.LivePrefix+"nonsense", "")
	publish(bus.LivePrefix+hex.EncodeToString(org[:]), "")
	expect(member, "the member", "usage")
	publish(bus.NoticeBudget, ids.Format(ids.Org, org))
	expect(member, "the member", "credit", "keys")
	publish(bus.NoticeKey, ids.Format(ids.Org, org))
	expect(member, "the member", "keys")
	publish(bus.LiveOperator, "")
	expect(operator, "the operator", "usage", "ops")
	publish(bus.NoticeCatalogue, "")
	expect(operator, "the operator", "hosts", "units")
	publish(bus.FleetLoad, "{}")
	expect(operator, "the operator", "units")
	publish(bus.FleetLoad, "{}") // within the same second
	publish(bus.LiveOperator, "")
	expect(operator, "the operator", "usage", "ops")
	c.Advance(time.Second)
	publish(bus.FleetLoad, "{}")
	expect(operator, "the operator", "units")
}
