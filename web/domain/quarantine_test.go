package domain_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"millrace/internal/ids"
	"millrace/internal/usage"
)

// event is a request of Acme's as a gateway logs it, made now.
func (s *shop) event() usage.Event {
	return usage.Event{ID: idAt(now), Org: s.acme.ID, Project: s.project.ID, Key: s.ci.ID, Model: s.small.ID, Epoch: ids.New(),
		Usage: usage.Vector{usage.Input: 1234, usage.Output: 77, usage.Requests: 1}, Raw: []byte(`{"prompt_tokens":1234,"completion_tokens":77}`),
		Ending: usage.Complete, Dialect: "chat", Status: 200, Streamed: true, StartedMS: now.UnixMilli(), FirstTokenMS: now.UnixMilli() + 100, EndedMS: now.UnixMilli() + 900}
}

// aside puts an event into quarantine, as the rater does.
func (s *shop) aside(e usage.Event, reason string) ids.ID {
	s.t.Helper()
	text, err := e.AppendJSON(nil)
	s.must(err)
	id := ids.New()
	s.exec("INSERT INTO quarantine (id, org_id, event_id, shard, incarnation, seq, position, reason, payload) VALUES ($1, $2, $3, 0, $4, 1, 0, $5, $6)", id, e.Org, e.ID, id.String(), reason, text)
	return id
}

// shows asks for a page and for words on it, and for none of those that come after "but not".
func (s *shop) shows(who, path string, words ...string) {
	s.t.Helper()
	status, body, _ := s.page(who, path, nil)
	if status != http.StatusOK {
		s.t.Errorf("%s answers %d", path, status)
		return
	}
	want := true
	for _, w := range words {
		if w == "but not" {
			want = false
		} else if strings.Contains(body, w) != want {
			s.t.Errorf("%s: %q is shown: %v, want %v", path, w, !want, want)
		}
	}
}

func TestTheOperatorSeesWhyAndTheCustomerThatNothingIsCharged(t *testing.T) {
	s := newShop(t)
	e := s.event()
	e.Usage, e.Doubt = usage.Impossible, "77 tokens were generated, at most 5 were asked for"
	page := "/admin/quarantine/" + ids.Format(ids.Aside, s.aside(e, "the engine's count cannot be right: "+e.Doubt))
	request := "/requests/" + ids.Format(ids.Request, e.ID)
	s.shows(s.staff, "/admin/exceptions", "1 event waits for a decision", e.Doubt, "Acme Robotics", "demo/small", page)
	s.shows(s.staff, page, e.Doubt, "Acme Robotics", "ci-nightly", "demo/small", "complete, HTTP 200", ids.Format(ids.Request, e.ID), "completion_tokens")
	s.shows(s.owner, request, "set aside and nothing was charged", "set aside, free", "demo/small", "but not", "77 tokens", "cannot be right", "completion_tokens")
	for _, who := range []string{s.rival, ""} {
		if status, _, _ := s.page(who, request, nil); status == http.StatusOK {
			t.Errorf("%q reads Acme's request", who)
		}
	}
	for _, who := range []string{s.owner, ""} {
		if status, _, _ := s.page(who, page, nil); status == http.StatusOK {
			t.Errorf("%q reads the operator's page", who)
		}
	}
	if status, body, _ := s.page(s.staff, page+"/book", url.Values{}); status != http.StatusUnprocessableEntity || !strings.Contains(body, "It still cannot be booked") {
		t.Errorf("impossible usage is booked: %d", status)
	}
}

func TestQuarantineIsDecidedOnItsPages(t *testing.T) {
	s := newShop(t)
	book, drop := s.event(), s.event()
	toBook, toDrop := "/admin/quarantine/"+ids.Format(ids.Aside, s.aside(book, "its model does not exist")), "/admin/quarantine/"+ids.Format(ids.Aside, s.aside(drop, "its model does not exist"))
	s.shows(s.staff, toBook, "1,234", toBook+"/book", toBook+"/dismiss")
	s.shows(s.staff, toBook+"/book", "Acme Robotics")
	if status, _, _ := s.page(s.staff, toDrop+"/dismiss", url.Values{"reason": {" "}}); status != http.StatusUnprocessableEntity {
		t.Errorf("dismissed without a reason: %d", status)
	}
	for range 2 { // a form that is sent twice
		for path, form := range map[string]url.Values{toBook + "/book": {}, toDrop + "/dismiss": {"reason": {"The model was a test."}}} {
			if status, _, where := s.page(s.staff, path, form); status != http.StatusSeeOther || !strings.HasPrefix(where, "/admin/exceptions?done=") {
				t.Errorf("%s answers %d, %q", path, status, where)
			}
		}
	}
	s.shows(s.staff, "/admin/exceptions", "Nothing in quarantine")
	s.shows(s.staff, toBook, "booked", "but not", toBook+"/book")
	s.shows(s.staff, toDrop, "dismissed", "The model was a test.", "but not", toDrop+"/dismiss")
	s.shows(s.owner, "/requests/"+ids.Format(ids.Request, book.ID), "1,234", "but not", "set aside")
	s.shows(s.owner, "/requests/"+ids.Format(ids.Request, drop.ID), "set aside, free")
	s.shows(s.staff, "/admin/audit", "quarantine.redrive", "quarantine.dismiss", "an event in quarantine")
	s.shows(s.owner, "/audit", "but not", "quarantine")
	if status, _, _ := s.page(s.staff, toDrop+"/book", url.Values{}); status != http.StatusUnprocessableEntity {
		t.Errorf("booked what is dismissed: %d", status)
	}
}
