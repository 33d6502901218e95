package domain

import (
	"context"

	"millrace/billing/topup"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
	"millrace/web/console"
	"millrace/web/session"
)

// shownTopups is how many top-ups the page lists.
const shownTopups = 25

// alert is what must be seen on every page of an organization, by who may act on it.
func (d *Deps) alert(ctx context.Context, who session.Viewer) (string, error) {
	if !who.May.Has(session.PermBilling) || !d.Topups.On() {
		return "", nil
	}
	paused, err := d.Topups.Paused(ctx, member(who), who.Org)
	if err != nil || paused == "" {
		return "", err
	}
	return "Auto-recharge is paused, so your balance is not topped up. " + paused.Sentence(), nil
}

// Paying is how the organization pays.
func (c customer) Paying(ctx context.Context, who session.Viewer) (console.Paying, error) {
	by := member(who)
	balance, _, err := c.balance(ctx, by, who.Org)
	if err != nil {
		return console.Paying{}, err
	}
	out := console.Paying{Off: !c.Topups.On(), Test: c.Topups.Test(), Balance: balance, Least: dollars(topup.MinCents), Most: dollars(topup.MaxCents)}
	list, err := c.Topups.List(ctx, by, who.Org, shownTopups)
	if err != nil {
		return console.Paying{}, err
	}
	for _, t := range list {
		out.Topups = append(out.Topups, topupOf(t))
	}
	s, err := c.Topups.Standing(ctx, by, who.Org)
	if err != nil {
		return console.Paying{}, err
	}
	if s.Card != (topup.Kept{}) {
		out.Card = &console.Card{Brand: s.Card.Brand, Last4: s.Card.Last4, Expiry: s.Card.Expiry}
	}
	a := s.Auto
	out.Recharge = console.RechargeState{Recharge: console.Recharge{Below: a.Below, To: a.To, MonthlyMax: a.MonthlyMax}, On: a.Enabled, Paused: a.Paused.Sentence(),
		ThisMonth: a.ThisMonth, MonthEnds: a.MonthEnds, Consent: a.Consent, ConsentAt: a.ConsentAt}
	if a.Enabled {
		if out.Recharge.ConsentBy, err = c.personName(ctx, by, who.Org, a.ConsentBy); err != nil {
			return out, err
		}
	}
	out.Charging, err = c.charging(ctx, by, who.Org)
	return out, err
}

// charging is how invoices are paid.
func (c customer) charging(ctx context.Context, by tenants.Actor, org ids.ID) (console.Charging, error) {
	x, err := c.Collect.Consent(ctx, by, org)
	if err != nil || !x.On {
		return console.Charging{}, err
	}
	name, err := c.personName(ctx, by, org, x.By)
	return console.Charging{On: true, Consent: x.Sentence, ConsentBy: name, ConsentAt: x.At}, err
}

func dollars(cents int64) money.Nano { return money.Nano(cents) * topup.NanoPerCent }

// personName is the address of a member who agreed to something; who has left is told by id.
func (c customer) personName(ctx context.Context, by tenants.Actor, org ids.ID, name string) (string, error) {
	members, err := c.Tenants.Members(ctx, by, org)
	for _, m := range members {
		if ids.Format(ids.User, m.User) == name {
			return m.Email, nil
		}
	}
	return name, err
}

func topupOf(t topup.Topup) console.Topup {
	return console.Topup{ID: t.ID, At: t.Created, Amount: t.Amount, Back: t.Clawed, Auto: t.Kind == topup.Auto, State: string(t.State), URL: t.URL, Failure: t.Failure, Next: t.Next}
}

// StartTopup makes a top-up. One that is not open any more is paid nowhere: its own page says what became of it.
func (c customer) StartTopup(ctx context.Context, who session.Viewer, t console.NewTopup) (string, error) {
	made, err := c.Topups.Start(ctx, member(who), topup.NewTopup{Org: who.Org, ID: t.ID, Cents: int64(t.Amount / topup.NanoPerCent), KeepCard: t.Keep})
	return made.URL, err
}

// Topup is one top-up as it is now.
func (c customer) Topup(ctx context.Context, who session.Viewer, id ids.ID) (console.Topup, error) {
	t, err := c.Topups.Look(ctx, member(who), who.Org, id)
	if fault.Is(err, fault.Conflict) { // an operator must look at it; the customer sees what is known
		err = nil
	}
	return topupOf(t), err
}

// AddCard says where a card is given.
func (c customer) AddCard(ctx context.Context, who session.Viewer, id ids.ID) (string, error) {
	return c.Topups.AddCard(ctx, member(who), who.Org, id)
}

// CardAdded keeps the card that was given on a page.
func (c customer) CardAdded(ctx context.Context, who session.Viewer, page string) error {
	return c.Topups.CardAdded(ctx, member(who), who.Org, page)
}

// RemoveCard forgets the card.
func (c customer) RemoveCard(ctx context.Context, who session.Viewer) error {
	return c.Topups.RemoveCard(ctx, member(who), who.Org)
}

// Receipts says where receipts are shown.
func (c customer) Receipts(ctx context.Context, who session.Viewer) (string, error) {
	return c.Topups.Portal(ctx, member(who), who.Org)
}

// Consent is the sentence that is agreed to.
func (c customer) Consent(ctx context.Context, who session.Viewer, r console.Recharge) (string, error) {
	return c.Topups.Consent(ctx, member(who), autoOf(who, r))
}

// SetRecharge turns auto-recharge on.
func (c customer) SetRecharge(ctx context.Context, who session.Viewer, r console.Recharge, agreed string) error {
	in := autoOf(who, r)
	in.Agreed = agreed
	return c.Topups.SetAuto(ctx, member(who), in)
}

func autoOf(who session.Viewer, r console.Recharge) topup.AutoInput {
	return topup.AutoInput{Org: who.Org, Below: r.Below, To: r.To, MonthlyMax: r.MonthlyMax}
}

// StopRecharge turns it off.
func (c customer) StopRecharge(ctx context.Context, who session.Viewer) error {
	return c.Topups.StopAuto(ctx, member(who), who.Org)
}

// ChargeConsent is the sentence that is agreed to when invoices are charged to the card.
func (c customer) ChargeConsent(ctx context.Context, who session.Viewer) (string, error) {
	return c.Collect.ChargeSentence(ctx, member(who), who.Org)
}

// ChargeInvoices has them charged.
func (c customer) ChargeInvoices(ctx context.Context, who session.Viewer, agreed string) error {
	return c.Collect.ChargeCard(ctx, member(who), who.Org, agreed)
}

// StopCharging has them sent.
func (c customer) StopCharging(ctx context.Context, who session.Viewer) error {
	return c.Collect.StopCharging(ctx, member(who), who.Org)
}
