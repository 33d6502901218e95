package invoice_test

import (
	"context"
	"path"
	"strings"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

func (s *shop) consent() invoice.Consent {
	s.t.Helper()
	out, err := s.collect.Consent(context.Background(), tenants.Actor{Org: s.org, Role: tenants.Billing}, s.org)
	s.must(err)
	return out
}

func TestTheCardIsChargedByConsentOnly(t *testing.T) {
	s := newShop(t)
	ctx, by := t.Context(), tenants.Actor{User: ids.New(), Org: s.org, Role: tenants.Billing}
	if _, err := s.collect.ChargeSentence(ctx, by, s.org); !fault.Is(err, fault.Conflict) {
		t.Errorf("a sentence without a card: %v", err)
	}
	if err := s.collect.ChargeCard(ctx, by, s.org, "x"); !fault.Is(err, fault.Conflict) {
		t.Errorf("agreed without a card: %v", err)
	}
	s.keepCard(stripefake.CardGood)
	sentence, err := s.collect.ChargeSentence(ctx, by, s.org)
	s.must(err)
	if !strings.Contains(sentence, "visa …4242") {
		t.Errorf("the sentence is %q", sentence)
	}
	s.clock.Advance(time.Minute)
	s.must(s.collect.ChargeCard(ctx, by, s.org, sentence))
	if got := s.consent(); got != (invoice.Consent{On: true, Sentence: sentence, By: ids.Format(ids.User, by.User), At: got.At}) || !got.At.Equal(s.clock.Now().Truncate(time.Microsecond)) {
		t.Errorf("the consent is %+v", got)
	}
	for name, who := range map[string]tenants.Actor{"a viewer": {User: ids.New(), Org: s.org, Role: tenants.Viewer}, "another organization": {User: ids.New(), Org: ids.New(), Role: tenants.Owner}} {
		if err := s.collect.StopCharging(ctx, who, s.org); err == nil {
			t.Errorf("%s stops it", name)
		}
		if _, err := s.collect.Consent(ctx, who, s.org); err == nil {
			t.Errorf("%s reads it", name)
		}
		if _, err := s.collect.ChargeSentence(ctx, who, s.org); err == nil {
			t.Errorf("%s reads the sentence", name)
		}
	}
	entries := func() int64 {
		return s.number("select count(*) from audit_log where org_id = $1 and action = 'invoice.charge_card'", s.org)
	}
	for range 2 { // the second time there is nothing to stop
		s.must(s.collect.StopCharging(ctx, by, s.org))
	}
	if got := s.consent(); got != (invoice.Consent{}) || entries() != 3 {
		t.Errorf("stopped, the consent is %+v with %d entries", got, entries())
	}
	id := s.bill(10_00)
	s.turn()
	if there, how := s.one(), s.how(id); there.Status != "open" || how.Charge {
		t.Errorf("without a consent: %+v, %+v", there, how)
	}
}

// A consent is to charge a card that is kept: it ends when the card is forgotten, and another card needs another one.
func TestAConsentEndsWithTheCard(t *testing.T) {
	s := newShop(t)
	by := tenants.Actor{User: ids.New(), Org: s.org, Role: tenants.Owner}
	s.keepCard(stripefake.CardGood)
	s.must(s.topups.RemoveCard(t.Context(), by, s.org))
	if got := s.consent(); got.On {
		t.Errorf("without a card: %+v", got)
	}
	s.giveCard(by, stripefake.CardGood)
	if got := s.consent(); got.On {
		t.Errorf("another card: %+v", got)
	}
}

// A card that is given between the page and the click is not what the page was about.
func TestAConsentIsToTheSentenceThatWasShown(t *testing.T) {
	s := newShop(t)
	ctx, by := t.Context(), tenants.Actor{User: ids.New(), Org: s.org, Role: tenants.Owner}
	s.giveCard(by, stripefake.CardGood)
	shown, err := s.collect.ChargeSentence(ctx, by, s.org)
	s.must(err)
	s.clock.Advance(time.Minute)
	s.giveCard(by, stripefake.CardMastercard)
	for _, agreed := range []string{shown, ""} {
		err := s.collect.ChargeCard(ctx, by, s.org, agreed)
		if f := fault.Of(err); f == nil || f.Code != fault.CodeSentenceChanged || !strings.Contains(f.Message, "mastercard …4444") {
			t.Errorf("agreed to %q: %v", agreed, err)
		}
		if got := s.consent(); got.On {
			t.Errorf("agreed to %q: %+v", agreed, got)
		}
	}
	s.agree(by)
	if got := s.consent(); !got.On || !strings.Contains(got.Sentence, "mastercard …4444") {
		t.Errorf("%+v", got)
	}
}

// agree has invoices charged to the kept card, by the sentence of now.
func (s *shop) agree(by tenants.Actor) {
	s.t.Helper()
	sentence, err := s.collect.ChargeSentence(context.Background(), by, s.org)
	s.must(err)
	s.must(s.collect.ChargeCard(context.Background(), by, s.org, sentence))
}

// giveCard keeps a card and agrees to nothing.
func (s *shop) giveCard(by tenants.Actor, number string) {
	s.t.Helper()
	url, err := s.topups.AddCard(context.Background(), by, s.org, ids.New())
	s.must(err)
	s.pay(url, number)
	s.must(s.topups.CardAdded(context.Background(), by, s.org, path.Base(url)))
}

func (s *shop) pay(url, number string) {
	s.t.Helper()
	if problem := s.fake.Pay(path.Base(url), stripefake.Way{Number: number, Confirmed: true}); problem != "" {
		s.t.Fatal(problem)
	}
}

// A card that was given before the consent, and is heard of behind it, is the newer card all the same.
func TestAConsentIsNoNewerCard(t *testing.T) {
	s := newShop(t)
	ctx, by := t.Context(), tenants.Actor{User: ids.New(), Org: s.org, Role: tenants.Owner}
	s.giveCard(by, stripefake.CardGood)
	s.clock.Advance(time.Minute)
	url, err := s.topups.AddCard(ctx, by, s.org, ids.New())
	s.must(err)
	s.pay(url, stripefake.CardMastercard)
	s.clock.Advance(time.Minute)
	s.agree(by)
	s.must(s.topups.CardAdded(ctx, by, s.org, path.Base(url)))
	if x, err := s.topups.Standing(ctx, by, s.org); err != nil || x.Card.Last4 != "4444" {
		t.Errorf("kept is %+v, %v", x.Card, err)
	}
}

// What the payment provider knows no more can be started over: it is looked for by our id first, so nobody is asked twice.
func TestStartingOverWhatIsNotKnownThere(t *testing.T) {
	s := newShop(t)
	id := s.bill(10_00)
	s.turn()
	ref := s.how(id).Ref
	s.exec("update invoice_pushes set ref = 'in_gone' where invoice_id = $1", id)
	if how, err := s.collect.Retry(t.Context(), operator, s.org, id, false); err != nil || how.State != invoice.PushStopped || !strings.Contains(how.Problem, "in_gone") {
		t.Fatalf("%+v, %v", how, err)
	}
	if how, err := s.collect.Retry(t.Context(), operator, s.org, id, true); err != nil || how.State != invoice.PushAsked || how.Ref != ref || len(s.fake.Invoices()) != 1 {
		t.Errorf("%+v, %v, %d there", how, err, len(s.fake.Invoices()))
	}
}
