package domain

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/agents/hub"
	"millrace/billing/credit"
	"millrace/billing/price"
	"millrace/billing/rate"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/web/admin"
	"millrace/web/session"
)

// customerFields are the form's names for what tenants complains about.
var customerFields = map[string]string{"owner_email": "email", "time_zone": "zone", "amount": "credit"}

// CreateCustomer makes an organization, gives its first credit and mails its owner a sign-in link. Two customers of one
// name would be confused, so the second is a Conflict; that also stops a form that is sent twice.
func (b business) CreateCustomer(ctx context.Context, who session.Viewer, in admin.NewCustomer) (ids.ID, error) {
	by := staff(who)
	if err := by.RequireOperator(); err != nil {
		return ids.Nil, err
	}
	if most := b.Credit.ApprovalLimit(); in.Credit != nil && *in.Credit > most {
		return ids.Nil, fault.New(fault.Invalid, "A first credit above %s USD waits for a second operator. Create the customer without it, then ask for it.", most).WithParam("credit")
	}
	name := strings.TrimSpace(in.Name)
	var same []ids.ID
	err := b.asSystem(ctx, func(r *q.Queries) (err error) {
		same, err = r.PageOrgNamed(ctx, name)
		return err
	})
	if err != nil {
		return ids.Nil, err
	}
	if len(same) > 0 {
		return ids.Nil, fault.New(fault.Conflict, "There is a customer with this name already.").WithParam("name").WithCode("name_taken")
	}
	// Two clicks at once pass the look above: the key makes them one.
	once := sha256.Sum256([]byte(name + "\x00" + in.Email + "\x00" + in.Zone))
	org, err := b.Tenants.CreateOrg(ctx, by, tenants.NewOrg{Name: name, TimeZone: in.Zone, Owner: in.Email, IdempotencyKey: "form " + hex.EncodeToString(once[:])})
	if err != nil {
		return ids.Nil, rename(err, customerFields)
	}
	if in.Credit != nil {
		_, err := b.Credit.Ask(ctx, by, credit.Ask{Org: org.ID, Kind: credit.GrantRequest, Grant: credit.Paid, Amount: *in.Credit, Reason: "First credit", IdempotencyKey: "first credit"})
		if err != nil {
			return ids.Nil, rename(err, customerFields)
		}
	}
	return org.ID, b.Tenants.RequestLink(ctx, in.Email)
}

// BookQuarantined charges an event in quarantine after all.
func (b business) BookQuarantined(ctx context.Context, who session.Viewer, id ids.ID) error {
	return rate.NewDesk(b.DB, b.Clock).Redrive(ctx, staff(who), id)
}

// DismissQuarantined decides that an event in quarantine is never charged.
func (b business) DismissQuarantined(ctx context.Context, who session.Viewer, id ids.ID, why string) error {
	return rate.NewDesk(b.DB, b.Clock).Dismiss(ctx, staff(who), id, why)
}

// priceFields are the form's names for what billing/price complains about.
var priceFields = map[string]string{"effective_at": "effective"}

// PublishPrice adds a version of the standard price. Prices that raise doubts are a Conflict with the code confirm_prices until
// they are confirmed. Prices that are in force already are a Conflict: the form was sent twice.
func (b business) PublishPrice(ctx context.Context, who session.Viewer, p admin.NewPrice) error {
	by := staff(who)
	if err := by.RequireOperator(); err != nil {
		return err
	}
	d, err := draftOf(p)
	if err != nil {
		return err
	}
	if p.Effective.IsZero() {
		var now price.Version
		err := b.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
			now, err = price.At(ctx, tx, p.Model, price.Standard, b.Clock.Now())
			return err
		})
		switch {
		case err == nil && now.Prices == p.Prices && now.Terms.Equal(&d.Terms):
			return fault.New(fault.Conflict, "These prices are in force already.").WithCode("price_unchanged")
		case err != nil && !fault.Is(err, fault.NotFound):
			return err
		}
	}
	_, err = b.Prices.Create(ctx, by, d)
	return rename(err, priceFields)
}

// hostNameBytes makes the made-up name of a host that joins unlike every other's.
const hostNameBytes = 4

// JoinToken makes a one-time token and the command that uses it. Gateways reach the host through its own link, so that
// nothing has to reach the machine.
func (b business) JoinToken(ctx context.Context, who session.Viewer, name string) (admin.Join, error) {
	if name == "" {
		var random [hostNameBytes]byte
		_, _ = rand.Read(random[:]) // crypto/rand.Read never fails
		name = "host-" + hex.EncodeToString(random[:])
	}
	token, err := b.Fleet.JoinToken(ctx, name, staff(who))
	if err != nil {
		return admin.Join{}, err
	}
	return admin.Join{Command: fmt.Sprintf("millrace-agent --hub %s --join %s --data-listen ''", b.HubURL, token), Expires: b.Clock.Now().Add(hub.TokenLife)}, nil
}
