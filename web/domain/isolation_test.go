package domain_test

import (
	"context"
	"io"
	"reflect"
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/admin"
	"millrace/web/bill"
	"millrace/web/console"
	pages "millrace/web/report"
	"millrace/web/session"
)

// Bluefin's owner knows every id of Acme's, and gets nowhere with them.
func TestNobodyReachesAnother(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.rival), s.viewer(s.rival)
	one := money.Nano(1)
	acmes, err := s.site.Customer.Limits(s.as(s.owner), s.viewer(s.owner))
	s.must(err)
	_, err = s.site.Hooks.AddHook(s.as(s.owner), s.viewer(s.owner), "https://acme.example/in")
	s.must(err)
	hooks, err := s.site.Hooks.Hooks(s.as(s.owner), s.viewer(s.owner))
	s.must(err)
	for name, do := range map[string]func() error{
		"Key":       func() error { _, err := s.site.Customer.Key(ctx, who, s.ci.ID); return err },
		"Request":   func() error { _, err := s.site.Customer.Request(ctx, who, s.calls[0]); return err },
		"RevokeKey": func() error { return s.site.Change.RevokeKey(ctx, who, s.ci.ID) },
		"RaiseCap": func() error {
			return s.site.Change.RaiseCap(ctx, who, console.Raise{Rule: acmes.Rules[0].ID, To: 1000 * money.NanoPerUSD, Until: s.clock.Now().Add(time.Hour)})
		},
		"TestHook":   func() error { return s.site.Hooks.TestHook(ctx, who, hooks[0].ID) },
		"RemoveHook": func() error { return s.site.Hooks.RemoveHook(ctx, who, hooks[0].ID) },
		"SetCap of a key": func() error {
			return s.site.Change.SetCap(ctx, who, console.CapChange{Scope: console.ScopeKey, ID: s.ci.ID, Cap: &one})
		},
		"SetCap of a project": func() error {
			return s.site.Change.SetCap(ctx, who, console.CapChange{Scope: console.ScopeProject, ID: s.bots.ID, Cap: &one})
		},
		"SetCap of the organization": func() error {
			return s.site.Change.SetCap(ctx, who, console.CapChange{Scope: console.ScopeOrg, ID: s.acme.ID, Cap: &one})
		},
	} {
		if err := do(); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v, want NotFound", name, err)
		}
	}
	// Removing a cap that is not one's own removes nothing.
	s.must(s.site.Change.SetCap(ctx, who, console.CapChange{Scope: console.ScopeKey, ID: s.ci.ID}))
	if k, err := s.site.Customer.Key(s.as(s.owner), s.viewer(s.owner), s.ci.ID); err != nil || k.Cap == nil || !k.Revoked.IsZero() {
		t.Errorf("ci's key is now %+v, error %v", k, err)
	}
	cells, err := s.site.Customer.Usage(ctx, who, pages.Query{From: begin, To: now.Truncate(quarterHour), Zone: who.Location(), Step: pages.StepDay, Group: pages.ByKey, Key: s.ci.ID})
	if err != nil || len(cells) != 0 {
		t.Errorf("Acme's usage: %+v, error %v", cells, err)
	}
	cells, err = s.site.Customer.Usage(ctx, who, pages.Query{From: begin.Truncate(quarterHour), To: now.Truncate(quarterHour), Zone: who.Location(), Step: pages.StepDay, Group: pages.ByKey, Org: s.acme.ID})
	if err != nil || len(cells) != 1 || cells[0].Cost != bluefins {
		t.Errorf("Acme's usage by the operator's filter: %+v, error %v; want Bluefin's own", cells, err)
	}
	audit, err := s.site.Customer.Audit(ctx, who, "")
	s.must(err)
	for _, e := range audit.Entries {
		if e.Target == "key ci-nightly" || e.Actor == "dana@acme.example" {
			t.Errorf("Bluefin's audit log shows %+v", e)
		}
	}
}

// What is over all customers is closed to members and strangers, whatever the page's own guard does.
func TestOperatorsPagesAreForOperators(t *testing.T) {
	s := newShop(t)
	b, o := s.site.Business, s.site.Operate
	aside := s.aside(s.event(), "impossible")
	ways := map[string]func(ctx context.Context) error{
		"Overview":    func(ctx context.Context) error { _, err := b.Overview(ctx); return err },
		"Customers":   func(ctx context.Context) error { _, err := b.Customers(ctx, "", ""); return err },
		"Models":      func(ctx context.Context) error { _, err := b.Models(ctx); return err },
		"Model":       func(ctx context.Context) error { _, err := b.Model(ctx, s.small.ID); return err },
		"Hosts":       func(ctx context.Context) error { _, err := b.Hosts(ctx); return err },
		"Host":        func(ctx context.Context) error { _, err := b.Host(ctx, s.host); return err },
		"Units":       func(ctx context.Context) error { _, err := b.Units(ctx); return err },
		"Unit":        func(ctx context.Context) error { _, err := b.Unit(ctx, s.sim); return err },
		"Reconcile":   func(ctx context.Context) error { _, err := b.Reconcile(ctx); return err },
		"Exceptions":  func(ctx context.Context) error { _, err := b.Exceptions(ctx, ""); return err },
		"Quarantined": func(ctx context.Context) error { _, err := b.Quarantined(ctx, aside); return err },
		"Audit":       func(ctx context.Context) error { _, err := b.Audit(ctx, ""); return err },
		"Outbox":      func(ctx context.Context) error { _, err := b.Outbox(ctx); return err },
		"Revenue": func(ctx context.Context) error {
			_, err := b.Revenue(ctx, pages.Span{From: begin.Truncate(day), To: now.Truncate(day)})
			return err
		},
		"Usage": func(ctx context.Context) error {
			_, err := b.Usage(ctx, pages.Query{From: begin, To: now.Truncate(quarterHour), Step: pages.StepDay})
			return err
		},
	}
	for name, ask := range ways {
		s.must(ask(s.as(s.staff)))
		for who, ctx := range map[string]context.Context{"an owner": s.as(s.owner), "a stranger": t.Context()} {
			if err := ask(ctx); !fault.Is(err, fault.Forbidden) {
				t.Errorf("%s by %s: %v, want Forbidden", name, who, err)
			}
		}
	}
	who := s.viewer(s.owner)
	changes := map[string]error{
		"Approve":      o.Approve(t.Context(), who, ids.New()),
		"Refuse":       o.Refuse(t.Context(), who, ids.New(), "no"),
		"PublishPrice": o.PublishPrice(t.Context(), who, admin.NewPrice{Model: s.small.ID}),
		"Detach":       o.Detach(t.Context(), who, s.real),
		"Book":         o.BookQuarantined(t.Context(), who, aside),
		"Dismiss":      o.DismissQuarantined(t.Context(), who, aside, "mine"),
	}
	_, changes["GrantCredit"] = o.GrantCredit(t.Context(), who, grantOf(s.acme.ID, "1", "to myself"))
	_, changes["SetCreditLimit"] = o.SetCreditLimit(t.Context(), who, admin.CreditLimit{ID: ids.New(), Org: s.acme.ID, Limit: 1, Reason: "to myself"})
	_, changes["Adjust"] = o.Adjust(t.Context(), who, admin.Adjustment{ID: ids.New(), Org: s.acme.ID, Amount: 1, Reason: "to myself"})
	_, changes["Reverse"] = o.Reverse(t.Context(), who, admin.Reversal{ID: ids.New(), Org: s.acme.ID, Txn: ids.New(), Reason: "to myself"})
	_, changes["CreateCustomer"] = o.CreateCustomer(t.Context(), who, admin.NewCustomer{Name: "x", Email: "x@x.example", Zone: "UTC"})
	_, changes["JoinToken"] = o.JoinToken(t.Context(), who, "h1")
	_, changes["Attach"] = o.Attach(t.Context(), who, admin.Attachment{Name: "x", URL: "http://127.0.0.1:1", Engine: "vllm"})
	for name, err := range changes {
		if !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s by an owner: %v, want Forbidden", name, err)
		}
	}
	// One customer's page: to a member of another it does not exist.
	if _, err := b.Customer(s.as(s.rival), s.acme.ID); err == nil {
		t.Error("Bluefin's owner opens Acme's page")
	}
	if _, err := b.Customer(s.as(s.staff), ids.New()); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown customer: %v, want NotFound", err)
	}
}

// unknown are the ways to look at one customer: whoever may not hears that there is no such organization, although there is.
var unknown = map[string]bool{"Customer": true, "Statement": true, "Invoice": true, "InvoicePDF": true, "NotePDF": true}

// Whatever operators' pages can ask for or do, an owner cannot. New doors and ways are in here by themselves.
func TestEveryOperatorsWayIsClosed(t *testing.T) {
	s := newShop(t)
	site, doors := reflect.ValueOf(s.site), 0
	for i := range site.NumField() {
		door := site.Type().Field(i).Type
		if door.Kind() != reflect.Interface || door.PkgPath() != reflect.TypeFor[admin.Reader]().PkgPath() {
			continue // customers' and everybody's
		}
		doors++
		for j := range door.NumMethod() {
			m := door.Method(j)
			out := site.Field(i).MethodByName(m.Name).Call(s.asOwner(m.Type))
			err, _ := out[len(out)-1].Interface().(error)
			if file, ok := out[0].Interface().(bill.File); ok && err == nil { // it is written, and asked for, later
				err = file(s.as(s.owner), io.Discard)
			}
			hidden := unknown[m.Name] && fault.Is(err, fault.NotFound) && fault.Of(err).Message == "There is no such organization."
			if !hidden && !fault.Is(err, fault.Forbidden) {
				t.Errorf("%s.%s: %v, want Forbidden", door.Name(), m.Name, err)
			}
		}
	}
	if doors < 4 { // to read, to change, payments and invoices
		t.Errorf("only %d doors were tried", doors)
	}
}

// asOwner are an owner's arguments for a way of operators; what is named is his own.
func (s *shop) asOwner(way reflect.Type) (in []reflect.Value) {
	for j := range way.NumIn() {
		switch of := way.In(j); of {
		case reflect.TypeFor[context.Context]():
			in = append(in, reflect.ValueOf(s.as(s.owner)))
		case reflect.TypeFor[session.Viewer]():
			in = append(in, reflect.ValueOf(s.viewer(s.owner)))
		case reflect.TypeFor[ids.ID]():
			in = append(in, reflect.ValueOf(s.acme.ID))
		case reflect.TypeFor[string](): // a reason, or a name
			in = append(in, reflect.ValueOf("x"))
		case reflect.TypeFor[pages.Span]():
			in = append(in, reflect.ValueOf(pages.Span{From: begin.Truncate(day), To: now.Truncate(day)}))
		case reflect.TypeFor[pages.Query]():
			in = append(in, reflect.ValueOf(pages.Query{From: begin, To: now.Truncate(quarterHour), Step: pages.StepDay}))
		default:
			in = append(in, reflect.Zero(of))
		}
	}
	return in
}
