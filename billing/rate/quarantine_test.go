package rate_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"millrace/billing/usagelog"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/tenants"
)

// A decision is made once, by an operator, and the audit log has it.
func TestQuarantineIsDecidedOnce(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 10*usd, usd)
	later, never := c.event(100), c.event(200)
	later.Model, never.Model = ids.New(), ids.New()
	w.write(later, never)
	w.rateAll()
	waiting := w.waiting()
	if len(waiting) != 2 || *waiting[0].OrgID != c.org || *waiting[0].EventID != later.ID || waiting[0].Reason != "its model does not exist" {
		t.Fatalf("%+v", waiting)
	}
	redrive := func(id ids.ID) error { return w.desk().Redrive(t.Context(), ann, id) }
	dismiss := func(id ids.ID, why string) error { return w.desk().Dismiss(t.Context(), ann, id, why) }
	first, second := waiting[0].ID, waiting[1].ID
	if err := redrive(first); !fault.Is(err, fault.Conflict) {
		t.Fatalf("booked without its model: %v", err)
	}
	w.exec("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, 'later', 100000, 1000)", later.Model)
	w.model = later.Model
	w.price("standard", time.Now().Add(-time.Hour), prices)
	for _, x := range []struct {
		what string
		err  error
		kind fault.Kind // 0 = it succeeds
	}{
		{"booked", redrive(first), 0},
		{"booked again", redrive(first), 0},
		{"dismissed what is booked", dismiss(first, "a test"), fault.Conflict},
		{"dismissed without a reason", dismiss(second, " "), fault.Invalid},
		{"dismissed for a book", dismiss(second, strings.Repeat("x", 501)), fault.Invalid},
		{"dismissed", dismiss(second, "a test"), 0},
		{"dismissed again", dismiss(second, "another reason"), 0},
		{"booked what is dismissed", redrive(second), fault.Conflict},
		{"dismissed nothing", dismiss(ids.New(), "a test"), fault.NotFound},
		{"booked nothing", redrive(ids.New()), fault.NotFound},
	} {
		if x.kind == 0 && x.err != nil || x.kind != 0 && !fault.Is(x.err, x.kind) {
			t.Errorf("%s: %v, want kind %v", x.what, x.err, x.kind)
		}
	}
	w.want("SELECT count(*) FROM usage_events", 1, "SELECT charged_nano FROM usage_events", int64(later.Charge),
		"SELECT count(*) FROM quarantine WHERE resolved_at IS NULL", 0, "SELECT count(*) FROM quarantine WHERE resolution = 'a test' AND decided_by = 'token:ann'", 1,
		"SELECT count(*) FROM audit_log WHERE action = 'quarantine.redrive' AND actor = 'token:ann'", 1,
		"SELECT count(*) FROM audit_log WHERE action = 'quarantine.dismiss' AND after ->> 'reason' = 'a test'", 1, "SELECT count(*) FROM audit_log", 2)
	w.sound()
}

func TestOnlyOperatorsDecideAboutQuarantine(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 10*usd, usd)
	e := c.event(1)
	e.Model = ids.New()
	w.write(e)
	w.rateAll()
	id := w.waiting()[0].ID
	for _, by := range []tenants.Actor{{}, {User: ids.New(), Org: c.org, Role: tenants.Owner}} {
		if err := w.desk().Redrive(t.Context(), by, id); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%+v books: %v", by, err)
		}
		if err := w.desk().Dismiss(t.Context(), by, id, "mine"); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%+v dismisses: %v", by, err)
		}
	}
	w.want("SELECT count(*) FROM quarantine WHERE resolved_at IS NULL", 1, "SELECT count(*) FROM audit_log", 0)
}

// What a gateway could not believe is kept as it was logged, and why in its words.
func TestImpossibleUsageIsKeptWithItsReason(t *testing.T) {
	w := newWorld(t)
	e := w.customer(w.epoch(), 10*usd, usd).event(1)
	e.Usage, e.Charge, e.Raw, e.Doubt = usage.Impossible, 0, []byte(`{"prompt_tokens":5,"completion_tokens":5000}`), "5000 tokens were generated, at most 50 were asked for"
	w.write(e)
	w.rateAll()
	waiting := w.waiting()
	if len(waiting) != 1 || waiting[0].Reason != "the engine's count cannot be right: "+e.Doubt {
		t.Fatalf("%+v", waiting)
	}
	var kept usage.Event
	if err := usagelog.Decode(waiting[0].Payload, &kept); err != nil || !reflect.DeepEqual(&kept, e) {
		t.Errorf("%v: %+v is kept of %+v", err, kept, e)
	}
	if err := w.desk().Redrive(t.Context(), ann, waiting[0].ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("it was booked: %v", err)
	}
}
