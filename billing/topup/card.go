package topup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// AddCard makes a page where a person gives a card to keep. key makes a form that is sent twice one page.
func (s *Service) AddCard(ctx context.Context, by tenants.Actor, org, key ids.ID) (url string, err error) {
	customer, err := s.begin(ctx, by, org)
	if err != nil {
		return "", err
	}
	back := s.c.PublicURL + "/billing/payment"
	var x Session
	err = s.asCustomer(ctx, org, &customer, func() (err error) {
		x, err = s.c.Gateway.OpenCheckout(ctx, Checkout{Key: "card:" + ids.Format(ids.Topup, key) + ":" + customer, Customer: customer,
			Done: back + "?session={CHECKOUT_SESSION_ID}", Back: back})
		return err
	})
	if err != nil {
		return "", err
	}
	// The same key gives the page as it was when it was made: one that was used must not bring its card back.
	if x, err = s.c.Gateway.Session(ctx, x.ID); err != nil {
		return "", err
	}
	if x.State != SessionOpen {
		return "", fault.New(fault.Conflict, "This form was used already. Load it anew.").WithCode("form_sent")
	}
	return x.URL, nil
}

// CardAdded keeps the card that a person gave on a page, when it is theirs. Calling it again changes nothing.
func (s *Service) CardAdded(ctx context.Context, by tenants.Actor, org ids.ID, session string) error {
	customer, err := s.begin(ctx, by, org)
	if err != nil {
		return err
	}
	x, err := s.c.Gateway.Session(ctx, session)
	if err != nil {
		return err
	}
	if x.Customer != customer {
		return fault.New(fault.NotFound, "There is no such page.").WithCode("not_found")
	}
	return s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { return s.endSetup(ctx, tx, org, x) })
}

// endSetup keeps the card of a page. Of several pages the one that was finished last wins, in whatever order that is heard.
func (s *Service) endSetup(ctx context.Context, tx pgx.Tx, org ids.ID, x Session) error {
	if !x.Setup || x.State != SessionComplete || x.Card == nil {
		return nil
	}
	if err := lockAuto(ctx, tx, org); err != nil {
		return err
	}
	return s.keep(ctx, tx, org, *x.Card)
}

// lockAuto takes the lock that comes before those of top-ups and cards. There need be no auto-recharge.
func lockAuto(ctx context.Context, tx pgx.Tx, org ids.ID) error {
	if _, err := q.New(tx).LockAutoRecharge(ctx, org); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("topup: lock auto-recharge: %w", err)
	}
	return nil
}

// Portal makes a page of the payment provider where people see receipts, and remove cards and tax ids, or add them. It leads
// back to the page of payments. Each call makes another: the link is a key.
func (s *Service) Portal(ctx context.Context, by tenants.Actor, org ids.ID) (url string, err error) {
	customer, err := s.begin(ctx, by, org)
	if err != nil {
		return "", err
	}
	err = s.asCustomer(ctx, org, &customer, func() (err error) {
		url, err = s.c.Gateway.Portal(ctx, customer, s.c.PublicURL+"/billing/payment")
		return err
	})
	return url, err
}

// begin checks who asks and gives the organization at the payment provider.
func (s *Service) begin(ctx context.Context, by tenants.Actor, org ids.ID) (customer string, err error) {
	if err := by.Require(tenants.BillingManage, org); err != nil {
		return "", err
	}
	if !s.On() {
		return "", errOff
	}
	return s.customer(ctx, org)
}

// keep makes a card the one that is charged, unless one that was given later is. A new one ends a pause that was for want
// of it. The caller holds lockAuto.
func (s *Service) keep(ctx context.Context, tx pgx.Tx, org ids.ID, card Card) error {
	r := q.New(tx)
	now := s.now()
	was, err := r.PaymentCustomer(ctx, org)
	if err != nil {
		return found(err, "customer at the payment provider")
	}
	p := q.KeepPaymentMethodParams{OrgID: org, MethodID: &card.Method, CardBrand: card.Brand, CardLast4: card.Last4, Given: card.Given}
	if !card.Expiry.IsZero() {
		p.CardExpiry = &card.Expiry
	}
	n, err := r.KeepPaymentMethod(ctx, p)
	if err != nil {
		return fmt.Errorf("topup: keep a card: %w", err)
	}
	if n == 0 || text(was.MethodID) == card.Method {
		return nil
	}
	if _, err := r.ResumeAutoRecharge(ctx, q.ResumeAutoRechargeParams{OrgID: org, UpdatedAt: now, Reasons: ofCard}); err != nil {
		return fmt.Errorf("topup: resume: %w", err)
	}
	return audit.Append(ctx, tx, tenants.System(), audit.Change{Org: org, Action: "card.keep", Target: ids.Format(ids.Org, org), Before: cardAudit(was.CardBrand, was.CardLast4),
		After: cardAudit(card.Brand, card.Last4), At: now})
}

func cardAudit(brand, last4 string) any {
	if last4 == "" {
		return nil
	}
	return map[string]string{"card": brand + " …" + last4}
}

// RemoveCard forgets the kept card, here and at the payment provider; auto-recharge stops first.
func (s *Service) RemoveCard(ctx context.Context, by tenants.Actor, org ids.ID) error {
	if _, err := s.begin(ctx, by, org); err != nil {
		return err
	}
	var method string
	err := s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		if err := lockAuto(ctx, tx, org); err != nil {
			return err
		}
		c, err := r.PaymentCustomer(ctx, org)
		if err != nil {
			return found(err, "customer at the payment provider")
		}
		if method = text(c.MethodID); method == "" {
			return nil
		}
		_, err = r.StopAutoRecharge(ctx, q.StopAutoRechargeParams{OrgID: org, UpdatedAt: s.now()})
		return err
	})
	if err != nil || method == "" {
		return err
	}
	// Over there first: what fails can be asked for again while the card is known here. A refusal says that it is gone.
	if err := s.c.Gateway.Forget(ctx, method); err != nil && !refusedForGood(err) {
		return err
	}
	return s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error {
		_, err := s.drop(ctx, tx, by, org, method)
		return err
	})
}

// drop forgets a card in tx, if it is the kept one.
func (s *Service) drop(ctx context.Context, tx pgx.Tx, by tenants.Actor, org ids.ID, method string) (dropped bool, err error) {
	if err := lockAuto(ctx, tx, org); err != nil {
		return false, err
	}
	was, err := q.New(tx).DropPaymentMethod(ctx, q.DropPaymentMethodParams{OrgID: org, Method: method, Now: s.now()})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("topup: drop a card: %w", err)
	}
	return true, audit.Append(ctx, tx, by, audit.Change{Org: org, Action: "card.remove", Target: ids.Format(ids.Org, org), Before: cardAudit(was.CardBrand, was.CardLast4), At: s.now()})
}
