package invoice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Consent is whether an organization's invoices are charged to its kept card, and what it agreed to. Off = they are sent.
type Consent struct {
	On       bool
	Sentence string // word for word; "" = the log does not tell
	By       string // as the audit log names people
	At       time.Time
}

const chargeCard = "invoice.charge_card" // in the audit log, which keeps the consent

// consentEntry is a consent, or its end, in the audit log.
type consentEntry struct {
	On       bool   `json:"on"`
	Sentence string `json:"consent,omitempty"`
}

var errNoCard = fault.New(fault.Conflict, "There is no kept card. Give a card first.").WithCode("no_card")

// chargeSentence is what a customer agrees to, word for word. It says what nextAsk does.
func chargeSentence(brand, last4 string) string {
	return fmt.Sprintf("Whenever an invoice of mine becomes final, charge what is due of it to the card that I keep here (now %s …%s) without asking me again. If the card is declined, charge it again 3 and 7 days later, or when I give another card. I can turn this off at any time.",
		brand, last4)
}

// ChargeSentence is the sentence that ChargeCard agrees to now. It is of the kept card.
func (c *Collector) ChargeSentence(ctx context.Context, by tenants.Actor, org ids.ID) (sentence string, err error) {
	switch err := by.Require(tenants.BillingManage, org); {
	case err != nil:
		return "", err
	case !c.On():
		return "", errNoTill
	}
	err = c.s.c.DB.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		card, err := q.New(tx).PaymentCustomer(ctx, org)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && card.MethodID == nil {
			return errNoCard
		}
		sentence = chargeSentence(card.CardBrand, card.CardLast4)
		return wrapped("the kept card", err)
	})
	return sentence, err
}

// Consent tells how an organization's invoices are paid.
func (c *Collector) Consent(ctx context.Context, by tenants.Actor, org ids.ID) (out Consent, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return out, err
	}
	err = c.s.c.DB.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		row, err := q.New(tx).PaymentCustomer(ctx, org)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !row.ChargeInvoices {
			return nil
		}
		if err != nil {
			return wrapped("the kept card", err)
		}
		e, err := audit.Last(ctx, tx, org, chargeCard)
		if err != nil {
			return err
		}
		out = Consent{On: true, By: e.By.Actor, At: e.At}
		if len(e.After) == 0 {
			return nil
		}
		var said consentEntry
		err = json.Unmarshal(e.After, &said)
		out.Sentence = said.Sentence
		return wrapped("read a consent", err)
	})
	return out, err
}

// ChargeCard has an organization's invoices charged to its kept card. agreed is the sentence that was shown, word for word: where
// it is not the one of the card that is kept in this moment, nothing is agreed to. Who manages its money may say so, and the audit
// log keeps the sentence. It ends with the card.
func (c *Collector) ChargeCard(ctx context.Context, by tenants.Actor, org ids.ID, agreed string) error {
	if err := by.Require(tenants.BillingManage, org); err != nil {
		return err
	}
	if !c.On() {
		return errNoTill
	}
	return c.setCharging(ctx, by, org, consentEntry{On: true, Sentence: agreed})
}

// StopCharging has invoices sent to be paid. Who agreed once may stop it at any time.
func (c *Collector) StopCharging(ctx context.Context, by tenants.Actor, org ids.ID) error {
	if err := by.Require(tenants.BillingManage, org); err != nil {
		return err
	}
	return c.setCharging(ctx, by, org, consentEntry{})
}

// setCharging keeps what was said about the card.
func (c *Collector) setCharging(ctx context.Context, by tenants.Actor, org ids.ID, said consentEntry) error {
	err := c.s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		card, err := r.SetChargeInvoices(ctx, q.SetChargeInvoicesParams{OrgID: org, ChargeInvoices: said.On}) // locks the card
		switch {
		case errors.Is(err, pgx.ErrNoRows) && said.On:
			return errNoCard
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return fmt.Errorf("invoice: charge the card: %w", err)
		}
		if now := chargeSentence(card.CardBrand, card.CardLast4); said.On && said.Sentence != now {
			return fault.New(fault.Conflict, "What you would agree to has changed since you saw it. It is now: “%s”", now).WithCode(fault.CodeSentenceChanged)
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: chargeCard, Target: ids.Format(ids.Org, org), After: said, At: c.s.now()})
	})
	if err == nil {
		credit.Tell(ctx, c.s.c.Notify, org)
	}
	return err
}
