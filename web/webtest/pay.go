package webtest

import (
	"context"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/console"
	"millrace/web/session"
)

// paying is what the fixture knows of payments.
type paying struct {
	card     *console.Card
	recharge console.RechargeState
	topups   []console.Topup
	charging console.Charging
}

func (w *world) payWorld() {
	w.pay.card = &console.Card{Brand: "visa", Last4: "4242", Expiry: time.Date(2029, time.December, 31, 0, 0, 0, 0, time.UTC)}
	w.pay.recharge = console.RechargeState{Recharge: console.Recharge{Below: usd("20"), To: usd("200"), MonthlyMax: usd("1000")}, On: true,
		Paused: "Your bank refuses this card. Give a new card.", ThisMonth: usd("360"), MonthEnds: time.Date(2026, time.December, 1, 0, 0, 0, 0, Berlin),
		Consent:   "Whenever my balance falls below $20, charge the card that I keep here (now visa …4242) without asking me again, to bring the balance to $200, and never more than $1000 in a calendar month. I can turn this off at any time.",
		ConsentBy: "dana@acme.example", ConsentAt: ago(days(20))}
	w.pay.charging = console.Charging{On: true, Consent: chargeSentence, ConsentBy: "dana@acme.example", ConsentAt: ago(days(9))}
	add := func(state string, amount, back string, auto bool, age time.Duration) {
		t := console.Topup{ID: id(kindTopup, len(w.pay.topups)+1), At: ago(age), Amount: usd(amount), Back: usd(back), Auto: auto, State: state}
		switch state {
		case "open":
			t.URL = "https://pay.example/cs_1"
		case "failed", "retrying":
			t.Failure, t.Next = "insufficient_funds", Now.Add(6*time.Hour)
		}
		w.pay.topups = append(w.pay.topups, t)
	}
	add("open", "50", "0", false, 4*time.Minute)
	add("processing", "100", "0", false, time.Hour)
	add("retrying", "180", "0", true, 5*time.Hour)
	add("succeeded", "180", "0", true, days(4))
	add("succeeded", "500", "500", false, days(12))
	add("failed", "180", "0", true, days(14))
	add("expired", "25", "0", false, days(15))
}

// Paying is how Acme Robotics pays.
func (f *Fixture) Paying(context.Context, session.Viewer) (console.Paying, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return console.Paying{Test: true, Off: f.state == Fresh, Balance: f.balance(), Least: usd("5"), Most: usd("10000"), Topups: f.pay.topups, Card: f.pay.card, Recharge: f.pay.recharge, Charging: f.pay.charging}, nil
}

// StartTopup sends nobody anywhere that exists.
func (f *Fixture) StartTopup(_ context.Context, _ session.Viewer, t console.NewTopup) (string, error) {
	if t.Amount < usd("5") {
		return "", fault.New(fault.Invalid, "Add from $5.00 to $10000.00 at once.").WithParam("amount")
	}
	return "about:blank#pay", nil
}

// Topup is one of the fixture's.
func (f *Fixture) Topup(_ context.Context, _ session.Viewer, want ids.ID) (console.Topup, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.pay.topups {
		if t.ID == want {
			return t, nil
		}
	}
	return console.Topup{}, errGone
}

// AddCard sends nobody anywhere that exists.
func (f *Fixture) AddCard(context.Context, session.Viewer, ids.ID) (string, error) {
	return "about:blank#card", nil
}

// CardAdded keeps nothing.
func (f *Fixture) CardAdded(context.Context, session.Viewer, string) error { return nil }

// RemoveCard forgets the card.
func (f *Fixture) RemoveCard(context.Context, session.Viewer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pay.card, f.pay.recharge.On, f.pay.charging = nil, false, console.Charging{}
	return nil
}

// Receipts sends nobody anywhere that exists.
func (f *Fixture) Receipts(context.Context, session.Viewer) (string, error) {
	return "about:blank#receipts", nil
}

// Consent is a sentence.
func (f *Fixture) Consent(_ context.Context, _ session.Viewer, r console.Recharge) (string, error) {
	if r.To <= r.Below {
		return "", fault.New(fault.Invalid, "Bring the balance to at least $5.00 more than the amount below which you charge.").WithParam("to")
	}
	return consentOf(r.Below, r.To), nil
}

func consentOf(below, to money.Nano) string {
	return "Whenever my balance falls below $" + below.String() + ", charge the card that I keep here (now visa …4242) without asking me again, to bring the balance to $" + to.String() + "."
}

// SetRecharge turns it on.
func (f *Fixture) SetRecharge(_ context.Context, who session.Viewer, r console.Recharge, agreed string) error {
	if agreed != consentOf(r.Below, r.To) {
		return errSentence
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pay.recharge = console.RechargeState{Recharge: r, On: true, Consent: agreed, ConsentBy: who.Email, ConsentAt: Now}
	return nil
}

// StopRecharge turns it off.
func (f *Fixture) StopRecharge(context.Context, session.Viewer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pay.recharge.On = false
	return nil
}
