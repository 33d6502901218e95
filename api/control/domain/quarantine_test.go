package domain_test

import (
	"net/http"
	"strings"
	"testing"

	"millrace/api/control"
	"millrace/api/problem"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

// event is a request of the customer's as a gateway logs it, made now.
func (w *world) event() usage.Event {
	return usage.Event{ID: idAt(now), Org: w.org.ID, Project: w.key.Project, Key: w.key.ID, Model: w.model.ID, PriceVersion: w.price.ID, Epoch: ids.New(),
		Usage: usage.Vector{usage.Input: 5, usage.Output: 7, usage.Requests: 1}, Raw: []byte(`{"prompt_tokens":5,"completion_tokens":7}`),
		Ending: usage.Complete, Dialect: "chat", Status: 200, StartedMS: now.UnixMilli(), EndedMS: now.UnixMilli() + 900}
}

// aside puts an event into quarantine, as the rater does, and gives its path in the API.
func (w *world) aside(e usage.Event, reason string) string {
	w.t.Helper()
	text, err := e.AppendJSON(nil)
	w.must(err)
	id := ids.New()
	w.exec("INSERT INTO quarantine (id, org_id, event_id, shard, incarnation, seq, position, reason, payload) VALUES ($1, $2, $3, 0, $4, 1, 0, $5, $6)", id, e.Org, e.ID, id.String(), reason, text)
	return "/quarantine/" + ids.Format(ids.Aside, id)
}

func TestARequestInQuarantineIsToldWithItsReason(t *testing.T) {
	w := newWorld(t)
	e := w.event()
	e.Usage, e.Doubt = usage.Impossible, "5000 tokens were generated, at most 50 were asked for"
	path := w.aside(e, "the engine's count cannot be right: "+e.Doubt)
	var r control.Request
	w.call("GET", "/orgs/"+ids.Format(ids.Org, w.org.ID)+"/requests/"+ids.Format(ids.Request, e.ID), "", http.StatusOK, &r)
	if r.Ending != "quarantined" || r.Charged.Nano != 0 || r.Tokens != (control.Tokens{}) || r.Model != "demo/small" || r.Status != 200 || r.Quarantine == nil || !strings.HasSuffix(r.Quarantine.Reason, e.Doubt) {
		t.Fatalf("%+v", r)
	}
	var list control.Page[control.Quarantined]
	w.call("GET", "/quarantine", "", http.StatusOK, &list)
	if len(list.Data) != 1 || "/quarantine/"+list.Data[0].ID != path {
		t.Fatalf("%+v", list)
	}
	x := list.Data[0]
	if x.OrgID != r.OrgID || x.RequestID != r.ID || x.KeyID != r.KeyID || x.ModelID != r.ModelID || x.Model != "demo/small" || !x.StartedAt.Equal(r.StartedAt) || !x.EndedAt.Equal(r.EndedAt) ||
		!strings.Contains(string(x.Event), `"completion_tokens":7`) || x.Decision != nil {
		t.Errorf("%+v: %s", x, x.Event)
	}
	var refused problem.Problem
	w.call("PUT", path+"/booking", "", http.StatusConflict, &refused)
	if refused.Code != "not_bookable" || !strings.Contains(refused.Detail, e.Doubt) {
		t.Errorf("%+v", refused)
	}
}

func TestQuarantineIsBooked(t *testing.T) {
	w := newWorld(t)
	e := w.event()
	path := w.aside(e, "its model does not exist")
	var x control.Quarantined
	for range 2 { // a repetition is harmless
		w.call("PUT", path+"/booking", "", http.StatusOK, &x)
		if x.Decision == nil || x.Decision.Decision != "booked" || x.Decision.By != "token:test" {
			t.Fatalf("%+v", x)
		}
	}
	var refused problem.Problem
	w.call("PUT", path+"/dismissal", `{"reason": "too late"}`, http.StatusConflict, &refused)
	if refused.Code != "decided_already" {
		t.Errorf("%+v", refused)
	}
	var r control.Request
	w.call("GET", "/orgs/"+x.OrgID+"/requests/"+x.RequestID, "", http.StatusOK, &r)
	if r.Ending != "complete" || r.Tokens.Output != 7 || r.Quarantine != nil || r.Overrun.Nano != 9500 { // nothing was allotted for it
		t.Errorf("%+v", r)
	}
	var list control.Page[control.Quarantined]
	w.call("GET", "/quarantine", "", http.StatusOK, &list)
	if len(list.Data) != 0 {
		t.Errorf("it still waits: %+v", list)
	}
}

func TestQuarantineIsDismissed(t *testing.T) {
	w := newWorld(t)
	e := w.event()
	path := w.aside(e, "its model does not exist")
	var refused problem.Problem
	w.call("PUT", path+"/dismissal", `{"reason": " "}`, http.StatusBadRequest, &refused)
	if refused.Param != "reason" {
		t.Errorf("%+v", refused)
	}
	var x control.Quarantined
	for _, why := range []string{"a miscount", "said again"} {
		w.call("PUT", path+"/dismissal", `{"reason": "`+why+`"}`, http.StatusOK, &x)
		if x.Decision == nil || x.Decision.Decision != "dismissed" || x.Decision.Reason != "a miscount" {
			t.Fatalf("%+v", x)
		}
	}
	w.call("PUT", path+"/booking", "", http.StatusConflict, &refused)
	var r control.Request
	w.call("GET", "/orgs/"+x.OrgID+"/requests/"+x.RequestID, "", http.StatusOK, &r)
	if r.Ending != "quarantined" || r.Charged.Nano != 0 || r.Quarantine.Decision == nil {
		t.Errorf("%+v", r)
	}
	w.call("PUT", "/quarantine/"+ids.Format(ids.Aside, ids.New())+"/dismissal", `{"reason": "nothing"}`, http.StatusNotFound, nil)
	w.call("PUT", "/quarantine/nonsense/booking", "", http.StatusNotFound, nil)
}
