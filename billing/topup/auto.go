package topup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/period"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// MaxMonthly bounds what a customer may let be charged in a month.
const MaxMonthly = 100_000 * money.NanoPerUSD

// AutoInput is what a customer allows.
type AutoInput struct {
	Org        ids.ID
	Below      money.Nano // charge when the balance falls below it
	To         money.Nano // and bring it to this
	MonthlyMax money.Nano // at most so much in a calendar month of the organization's zone
	Agreed     string     // the sentence of Service.Consent as it was shown, word for word
}

// Consent is the sentence that a customer agrees to, word for word, or says what is wrong with the figures.
func (s *Service) Consent(ctx context.Context, by tenants.Actor, in AutoInput) (string, error) {
	standing, err := s.Standing(ctx, by, in.Org)
	if err != nil {
		return "", err
	}
	if standing.Card == (Kept{}) {
		return "", errNoCard
	}
	if err := in.check(); err != nil {
		return "", err
	}
	return consent(in, standing.Card.Name()), nil
}

var errNoCard = fault.New(fault.Invalid, "Give a card first.").WithCode("no_card")

func consent(in AutoInput, card string) string {
	return fmt.Sprintf("Whenever my balance falls below $%s, charge the card that I keep here (now %s) without asking me again, to bring the balance to $%s, and never more than $%s in a calendar month. I can turn this off at any time.",
		in.Below, card, in.To, in.MonthlyMax)
}

// AutoRecharge is auto-recharge as it is set.
type AutoRecharge struct {
	Enabled    bool
	Below, To  money.Nano
	MonthlyMax money.Nano
	ThisMonth  money.Nano // charged in the running month, or about to be
	MonthEnds  time.Time
	Paused     Pause // "" = not
	PausedAt   time.Time
	Consent    string
	ConsentBy  string
	ConsentAt  time.Time
}

// Standing is how an organization pays.
type Standing struct {
	Card Kept
	Auto AutoRecharge // zero when it was never set
}

// Kept is the kept card; the zero Kept is none.
type Kept struct {
	Brand, Last4 string
	Expiry       time.Time // zero = not known
}

// Name is the card in a sentence.
func (k Kept) Name() string { return k.Brand + " …" + k.Last4 }

// Standing tells how an organization pays.
func (s *Service) Standing(ctx context.Context, by tenants.Actor, org ids.ID) (out Standing, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return out, err
	}
	err = s.inOrg(ctx, org, func(r *q.Queries) error {
		c, err := r.PaymentCustomer(ctx, org)
		if err = found(err, "customer at the payment provider"); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		out.Card = keptOf(c)
		a, err := r.AutoRecharge(ctx, org)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("topup: auto-recharge: %w", err)
		}
		out.Auto = AutoRecharge{Enabled: a.Enabled, Below: money.Nano(a.BelowNano), To: money.Nano(a.ToNano), MonthlyMax: money.Nano(a.MonthlyMaxNano),
			Paused: Pause(a.Paused), Consent: a.Consent, ConsentBy: a.ConsentedBy, ConsentAt: a.ConsentedAt}
		if a.PausedAt != nil {
			out.Auto.PausedAt = *a.PausedAt
		}
		month, err := s.month(ctx, r, org)
		if err != nil {
			return err
		}
		cents, err := r.AutoTopupCentsSince(ctx, q.AutoTopupCentsSinceParams{OrgID: org, Since: month.Start})
		out.Auto.ThisMonth, out.Auto.MonthEnds = nano(cents), month.End
		return err
	})
	return out, err
}

func keptOf(c q.PaymentCustomer) (k Kept) {
	if c.MethodID == nil {
		return k
	}
	k = Kept{Brand: c.CardBrand, Last4: c.CardLast4}
	if c.CardExpiry != nil {
		k.Expiry = *c.CardExpiry
	}
	return k
}

// month is the running calendar month in the organization's zone.
func (s *Service) month(ctx context.Context, r *q.Queries, org ids.ID) (period.Span, error) {
	name, err := r.OrgTimeZone(ctx, org)
	if err != nil {
		return period.Span{}, found(err, "organization")
	}
	zone, err := period.Zone(name)
	if err != nil {
		return period.Span{}, err
	}
	return period.At(period.Month, zone, s.now()), nil
}

// Paused says why an organization's auto-recharge charges nothing; "" when it does, or is off.
func (s *Service) Paused(ctx context.Context, by tenants.Actor, org ids.ID) (why Pause, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return "", err
	}
	err = s.inOrg(ctx, org, func(r *q.Queries) error {
		a, err := r.AutoRecharge(ctx, org)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !a.Enabled {
			return nil
		}
		why = Pause(a.Paused)
		return err
	})
	return why, err
}

// SetAuto turns auto-recharge on, or changes it, when what was agreed to is the sentence of the figures and of the card that is kept
// in this moment. It ends a pause.
func (s *Service) SetAuto(ctx context.Context, by tenants.Actor, in AutoInput) error {
	if _, err := s.begin(ctx, by, in.Org); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	if in.Agreed == "" {
		return fault.New(fault.Invalid, "Agree to the sentence, or nothing may be charged.").WithParam("agree")
	}
	return s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		before, err := r.LockAutoRecharge(ctx, in.Org)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("topup: auto-recharge: %w", err)
		}
		c, err := r.LockPaymentCustomer(ctx, in.Org)
		if err != nil {
			return found(err, "customer at the payment provider")
		}
		if c.MethodID == nil {
			return errNoCard
		}
		if sentence := consent(in, keptOf(c).Name()); in.Agreed != sentence {
			return fault.New(fault.Conflict, "What you would agree to has changed since you saw it. It is now: “%s”", sentence).WithCode(fault.CodeSentenceChanged)
		}
		now := s.now()
		p := q.SetAutoRechargeParams{OrgID: in.Org, Enabled: true, BelowNano: int64(in.Below), ToNano: int64(in.To), MonthlyMaxNano: int64(in.MonthlyMax),
			Consent: in.Agreed, ConsentedBy: by.Name(), Now: now}
		if err := r.SetAutoRecharge(ctx, p); err != nil {
			return fmt.Errorf("topup: set auto-recharge: %w", err)
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: in.Org, Action: "auto_recharge.set", Target: ids.Format(ids.Org, in.Org), Before: autoAudit(before),
			After: map[string]any{"below_usd": in.Below.String(), "to_usd": in.To.String(), "monthly_max_usd": in.MonthlyMax.String(), "consent": p.Consent}, At: now})
	})
}

func autoAudit(a q.AutoRecharge) any {
	if !a.Enabled {
		return nil
	}
	return map[string]any{"below_usd": money.Nano(a.BelowNano).String(), "to_usd": money.Nano(a.ToNano).String(), "monthly_max_usd": money.Nano(a.MonthlyMaxNano).String(), "paused": a.Paused}
}

func (in AutoInput) check() error {
	invalid := func(param, text string, args ...any) error {
		return fault.New(fault.Invalid, text, args...).WithParam(param)
	}
	switch {
	case in.Below <= 0 || in.Below > nano(MaxCents):
		return invalid("below", "Charge below an amount from $0.01 to %s.", dollars(MaxCents))
	case in.To < in.Below+nano(MinCents):
		return invalid("to", "Bring the balance to at least %s more than the amount below which you charge.", dollars(MinCents))
	case in.To > nano(MaxCents):
		return invalid("to", "Bring the balance to at most %s.", dollars(MaxCents))
	case in.MonthlyMax < in.To-in.Below || in.MonthlyMax > MaxMonthly:
		return invalid("monthly_max", "Allow at least one charge a month ($%s), and at most $%s.", in.To-in.Below, MaxMonthly)
	}
	return nil
}

// StopAuto turns auto-recharge off.
func (s *Service) StopAuto(ctx context.Context, by tenants.Actor, org ids.ID) error {
	if err := by.Require(tenants.BillingManage, org); err != nil {
		return err
	}
	return s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		before, err := r.LockAutoRecharge(ctx, org)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("topup: auto-recharge: %w", err)
		}
		n, err := r.StopAutoRecharge(ctx, q.StopAutoRechargeParams{OrgID: org, UpdatedAt: s.now()})
		if err != nil || n == 0 {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: "auto_recharge.stop", Target: ids.Format(ids.Org, org), Before: autoAudit(before), At: s.now()})
	})
}

// pause stops charging until somebody acts, and tells the people concerned once.
func (s *Service) pause(ctx context.Context, tx pgx.Tx, org ids.ID, why Pause) error {
	n, err := q.New(tx).PauseAutoRecharge(ctx, q.PauseAutoRechargeParams{OrgID: org, Paused: string(why), Over: why.over(), Now: s.now()})
	if err != nil || n == 0 {
		return err
	}
	return s.mail(ctx, tx, org, "Auto-recharge is paused", "Auto-recharge is paused: your balance is not topped up any more. "+why.Sentence())
}

// PausedOrg is an organization whose auto-recharge charges nothing.
type PausedOrg struct {
	Org  ids.ID
	Name string
	Why  Pause
	At   time.Time
}

const maxPauses = 200

// Pauses lists them, newest first. Operators only.
func (s *Service) Pauses(ctx context.Context, by tenants.Actor) (out []PausedOrg, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		rows, err := r.PausedRecharges(ctx, maxPauses)
		for _, x := range rows {
			p := PausedOrg{Org: x.OrgID, Name: x.OrgName, Why: Pause(x.Paused)}
			if x.PausedAt != nil {
				p.At = *x.PausedAt
			}
			out = append(out, p)
		}
		return err
	})
	return out, err
}
