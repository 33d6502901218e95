package domain_test

import (
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/admin"
	"millrace/web/console"
	"millrace/web/report"
)

func TestCapsOfEveryKind(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	ten := usd(t, "10")
	set := func(period string, alertOnly bool) {
		t.Helper()
		s.must(s.site.Change.SetCap(ctx, who, console.CapChange{Scope: console.ScopeProject, ID: s.ci.Project, Period: period, Cap: &ten, AlertOnly: alertOnly}))
	}
	rules := func() map[string]console.Rule {
		t.Helper()
		l, err := s.site.Customer.Limits(ctx, who)
		s.must(err)
		out := map[string]console.Rule{}
		for _, r := range l.Rules {
			if r.Scope == console.ScopeProject && r.ScopeID == s.ci.Project {
				out[r.Period] = r
			}
		}
		return out
	}
	set("day", true)
	set("total", false)
	got := rules()
	if !got["day"].AlertOnly || got["total"].AlertOnly || got["total"].Amount != ten || got["day"].Name == "" {
		t.Errorf("%+v", got)
	}
	until := s.clock.Now().Add(time.Hour)
	s.must(s.site.Change.RaiseCap(ctx, who, console.Raise{Rule: got["total"].ID, To: usd(t, "30"), Until: until}))
	if r := rules()["total"]; r.Raised != usd(t, "30") || !r.RaisedUntil.Equal(until) {
		t.Errorf("%+v", r)
	}
	if err := s.site.Change.RaiseCap(ctx, who, console.Raise{Rule: got["day"].ID, To: usd(t, "30"), Until: until}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a cap that only alerts was raised: %v", err)
	}
	s.must(s.site.Change.SetCap(ctx, who, console.CapChange{Scope: console.ScopeProject, ID: s.ci.Project, Period: "day"}))
	if r := rules(); len(r) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestWebhooksOfAnOrganization(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	secret, err := s.site.Hooks.AddHook(ctx, who, "https://acme.example/in")
	if err != nil || secret == "" {
		t.Fatal(err)
	}
	list, err := s.site.Hooks.Hooks(ctx, who)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	s.must(s.site.Hooks.TestHook(ctx, who, list[0].ID))
	if log, err := s.site.Hooks.Deliveries(ctx, who); err != nil || len(log) != 1 || log[0].Kind != "test" || log[0].State != "waiting" {
		t.Errorf("%+v, %v", log, err)
	}
	if err := s.site.Hooks.RemoveHook(s.as(s.rival), s.viewer(s.rival), list[0].ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's webhook: %v", err)
	}
	s.must(s.site.Hooks.RemoveHook(ctx, who, list[0].ID))
}

// Opening plus lines is closing, to the nano, and the operator sees the same.
func TestAStatementAddsUp(t *testing.T) {
	s := newShop(t)
	now := time.Now().UTC() // transactions carry the machine's time
	month := report.Span{From: time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)}
	month.To = month.From.AddDate(0, 1, 0)
	x, err := s.site.Customer.Statement(s.as(s.owner), s.viewer(s.owner), month)
	s.must(err)
	total := x.Opening.Total()
	for _, l := range x.Lines {
		if total += l.Amount; total != l.After {
			t.Errorf("%s: %s behind it, not %s", l.Text, l.After, total)
		}
	}
	if want := usd(t, "20.007") - acmeSpent; total != x.Closing.Total() || total != want {
		t.Errorf("lines make %s, closing is %s, want %s", total, x.Closing.Total(), want)
	}
	same, err := s.site.Business.Statement(s.as(s.staff), s.acme.ID, month)
	if err != nil || same.Closing != x.Closing || len(same.Lines) != len(x.Lines) {
		t.Errorf("the operator sees another statement: %v", err)
	}
	if _, err := s.site.Customer.StatementDay(s.as(s.viewing), s.viewer(s.viewing), month.From, ""); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a viewer reads the books: %v", err)
	}
}

func TestASecondOperatorApproves(t *testing.T) {
	s := newShop(t)
	g := grantOf(s.acme.ID, "1500", "a large one")
	waits, err := s.site.Operate.GrantCredit(s.as(s.staff), s.viewer(s.staff), g)
	if err != nil || !waits {
		t.Fatalf("waits=%v, %v", waits, err)
	}
	list, err := s.site.Business.Approvals(s.as(s.staff))
	if err != nil || len(list) == 0 || list[0].State != "waiting" || !list[0].Mine || list[0].OrgName != s.acme.Name || list[0].By == "" {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := s.site.Operate.Approve(s.as(s.staff), s.viewer(s.staff), list[0].ID); !fault.Is(err, fault.Forbidden) {
		t.Errorf("she approved herself: %v", err)
	}
	s.must(s.site.Operate.Refuse(s.as(s.staff), s.viewer(s.staff), list[0].ID, "a slip"))
	if waits, err := s.site.Operate.Adjust(s.as(s.staff), s.viewer(s.staff), admin.Adjustment{ID: ids.New(), Org: s.acme.ID, Amount: -usd(t, "1"), Reason: "charged too little"}); err != nil || waits {
		t.Errorf("waits=%v, %v", waits, err)
	}
}
