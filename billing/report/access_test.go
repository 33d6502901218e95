package report_test

import (
	"context"
	"testing"
	"time"

	"millrace/billing/report"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/tenants"
)

// ofOne is every question about one organization.
func (w *world) ofOne(from, to time.Time) map[string]func(ctx context.Context, by tenants.Actor, org ids.ID) (rows int, err error) {
	return map[string]func(ctx context.Context, by tenants.Actor, org ids.ID) (rows int, err error){
		"Usage": func(ctx context.Context, by tenants.Actor, org ids.ID) (int, error) {
			cells, err := w.Usage(ctx, by, report.Query{From: from, To: to, Step: report.StepTotal, Org: org})
			return len(cells), err
		},
		"Requests": func(ctx context.Context, by tenants.Actor, org ids.ID) (int, error) {
			list, err := w.Requests(ctx, by, org, report.Filter{Limit: 10})
			return len(list), err
		},
		"Movements": func(ctx context.Context, by tenants.Actor, org ids.ID) (int, error) {
			list, _, err := w.Movements(ctx, by, org, report.Mark{}, 10)
			return len(list), err
		},
		"Statement": func(ctx context.Context, by tenants.Actor, org ids.ID) (int, error) {
			s, err := w.Statement(ctx, by, org, from.AddDate(0, 0, -1), to)
			if err != nil {
				return 0, err
			}
			return len(s.Lines), nil
		},
		"Spend": func(ctx context.Context, by tenants.Actor, org ids.ID) (int, error) {
			s, err := w.Spend(ctx, by, org, from.Truncate(24*time.Hour), time.UTC)
			return len(s.Keys), err
		},
		"Used": func(ctx context.Context, by tenants.Actor, org ids.ID) (n int, err error) {
			used, err := w.Used(ctx, by, org)
			if used {
				n = 1
			}
			return n, err
		},
		"FirstTokens": func(ctx context.Context, by tenants.Actor, org ids.ID) (int, error) {
			q, err := w.FirstTokens(ctx, by, org, from)
			return int(q.P50), err
		},
		"FirstTokenSteps": func(ctx context.Context, by tenants.Actor, org ids.ID) (int, error) {
			steps, err := w.FirstTokenSteps(ctx, by, org, []time.Time{from}, []time.Time{to})
			if err != nil {
				return 0, err
			}
			return int(steps[0]), nil
		},
	}
}

// ofAll is every question over all of them.
func (w *world) ofAll(org ids.ID, from, to time.Time) map[string]func(by tenants.Actor) error {
	t := w.t
	return map[string]func(by tenants.Actor) error{
		"Revenue": func(by tenants.Actor) error { _, err := w.Revenue(t.Context(), by, from, to); return err },
		"Active":  func(by tenants.Actor) error { _, err := w.Active(t.Context(), by, from, to); return err },
		"LastRequests": func(by tenants.Actor) error {
			_, err := w.LastRequests(t.Context(), by, []ids.ID{org})
			return err
		},
		"Attention":   func(by tenants.Actor) error { _, err := w.Attention(t.Context(), by, from); return err },
		"Overruns":    func(by tenants.Actor) error { _, err := w.Overruns(t.Context(), by, from, ids.Nil, 10); return err },
		"Quarantine":  func(by tenants.Actor) error { _, err := w.Quarantine(t.Context(), by, ids.Nil, 10); return err },
		"OpenEpochs":  func(by tenants.Actor) error { _, err := w.OpenEpochs(t.Context(), by); return err },
		"UnitTraffic": func(by tenants.Actor) error { _, err := w.UnitTraffic(t.Context(), by, from); return err },
	}
}

// Whoever asks for another customer's matters learns that they do not exist; what is over all customers is for operators.
func TestNobodyReadsAnother(t *testing.T) {
	w := newWorld(t)
	mine, theirs := w.customer("Acme", 1, 0), w.customer("Bluefin", 1, 0)
	model := w.model("m/one")
	version := w.version(model, usage.Prices{})
	id := w.rate(theirs, call{key: theirs.keys[0], model: model, version: version, at: now, charged: 5, overrun: 5, first: time.Second})[0]
	w.grant(theirs, now, 100, "theirs")
	from, to := now.Truncate(15*time.Minute).Add(-time.Hour), now.Truncate(15*time.Minute).Add(time.Hour)
	ofOne := w.ofOne(from, to)
	for name, ask := range ofOne {
		if n, err := ask(t.Context(), theirs.member, theirs.id); err != nil || n == 0 {
			t.Errorf("%s: the owner reads %d rows, error %v", name, n, err)
		}
		if n, err := ask(t.Context(), w.root, theirs.id); err != nil || n == 0 {
			t.Errorf("%s: an operator reads %d rows, error %v", name, n, err)
		}
		if n, err := ask(t.Context(), mine.member, mine.id); err != nil || n != 0 {
			t.Errorf("%s: a customer without usage reads %d rows, error %v", name, n, err)
		}
		if _, err := ask(t.Context(), mine.member, theirs.id); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: another customer gets %v, want NotFound", name, err)
		}
		if _, err := ask(t.Context(), tenants.Actor{}, theirs.id); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: a stranger gets %v, want NotFound", name, err)
		}
		if _, err := ask(t.Context(), mine.member, ids.Nil); err == nil {
			t.Errorf("%s: a member reads over all customers", name)
		}
	}
	if _, _, err := w.Request(t.Context(), mine.member, mine.id, id); !fault.Is(err, fault.NotFound) {
		t.Errorf("Request: another customer's in one's own: %v, want NotFound", err)
	}
	if _, _, err := w.Request(t.Context(), mine.member, theirs.id, id); !fault.Is(err, fault.NotFound) {
		t.Errorf("Request: another customer gets %v, want NotFound", err)
	}
	viewer := tenants.Actor{User: ids.New(), Org: theirs.id, Role: tenants.Viewer}
	for _, name := range []string{"Movements", "Statement"} {
		if _, err := ofOne[name](t.Context(), viewer, theirs.id); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: a viewer gets %v, want Forbidden", name, err)
		}
	}
	ofAll := w.ofAll(theirs.id, from, to)
	for name, ask := range ofAll {
		if err := ask(w.root); err != nil {
			t.Errorf("%s: an operator gets %v", name, err)
		}
		if err := ask(theirs.member); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: a member gets %v, want Forbidden", name, err)
		}
	}
}
