package domain

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/hub"
	"millrace/billing/credit"
	"millrace/billing/price"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
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
		_, _, err := b.Credit.Grant(ctx, by, credit.GrantInput{Org: org.ID, Kind: credit.Paid, Amount: *in.Credit, Reason: "First credit", IdempotencyKey: "first credit"})
		if err != nil {
			return ids.Nil, rename(err, customerFields)
		}
	}
	return org.ID, b.Tenants.RequestLink(ctx, in.Email)
}

// grantFields are the form's names for what billing/credit complains about.
var grantFields = map[string]string{"expires_at": "ends"}

// GrantCredit gives credit, once per form.
func (b business) GrantCredit(ctx context.Context, who session.Viewer, g admin.Grant) error {
	in := credit.GrantInput{Org: g.Org, Kind: credit.Paid, Amount: g.Amount, Reason: g.Reason, ExpiresAt: g.Ends, IdempotencyKey: "form " + ids.Format(ids.Grant, g.ID)}
	if g.Promo {
		in.Kind = credit.Promotional
	}
	_, fresh, err := b.Credit.Grant(ctx, staff(who), in)
	if err != nil {
		return rename(err, grantFields)
	}
	if !fresh {
		return fault.New(fault.Conflict, "This form was sent already: the credit was granted once. Look at the customer's page.").WithCode("form_sent")
	}
	return nil
}

// priceFields are the form's names for what billing/price complains about.
var priceFields = map[string]string{"effective_at": "effective"}

// PublishPrice adds a version of the standard price. The page has made the operator look twice, so the domain's own
// doubts are answered with the model's name. Prices that are in force already are a Conflict: the form was sent twice.
func (b business) PublishPrice(ctx context.Context, who session.Viewer, p admin.NewPrice) error {
	by := staff(who)
	if err := by.RequireOperator(); err != nil {
		return err
	}
	model, err := b.modelName(p.Model)
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
		case err == nil && now.Prices == p.Prices:
			return fault.New(fault.Conflict, "These prices are in force already.").WithCode("price_unchanged")
		case err != nil && !fault.Is(err, fault.NotFound):
			return err
		}
	}
	_, err = b.Prices.Create(ctx, by, price.Draft{Model: p.Model, EffectiveAt: p.Effective, Prices: price.Every(p.Prices), Note: p.Note, Confirm: model})
	return rename(err, priceFields)
}

func (b business) modelName(id ids.ID) (string, error) {
	for _, m := range b.Catalogue.Models() {
		if m.ID == id {
			return m.Name, nil
		}
	}
	return "", fault.New(fault.NotFound, "There is no such model.").WithCode("model_not_found")
}

// hostNameBytes makes the name of a host that joins unlike every other's.
const hostNameBytes = 4

// JoinToken makes a one-time token and the command that uses it. Gateways reach the host through its own link, so that
// nothing has to reach the machine.
func (b business) JoinToken(ctx context.Context, who session.Viewer) (admin.Join, error) {
	var random [hostNameBytes]byte
	_, _ = rand.Read(random[:]) // crypto/rand.Read never fails
	token, err := b.Fleet.JoinToken(ctx, "host-"+hex.EncodeToString(random[:]), staff(who))
	if err != nil {
		return admin.Join{}, err
	}
	return admin.Join{Command: fmt.Sprintf("millrace-agent --hub %s --join %s --data-listen ''", b.HubURL, token), Expires: b.Clock.Now().Add(hub.TokenLife)}, nil
}

const askTimeout = 5 * time.Second // for what an engine serves

// attachFields are the form's names for what serving/catalogue complains about.
var attachFields = map[string]string{"model": "name"}

// Attach adds an engine that runs already; a model of a new name is made, with the context that the engine tells. The
// unit is called like the model and its number.
func (b business) Attach(ctx context.Context, who session.Viewer, a admin.Attachment) (ids.ID, error) {
	by := staff(who)
	if err := by.RequireOperator(); err != nil {
		return ids.Nil, err
	}
	base, err := engine.CleanBase(a.URL)
	if err != nil {
		return ids.Nil, fault.Of(err).WithParam("url")
	}
	if _, err := engine.Lookup(engine.Family(a.Engine)); err != nil {
		return ids.Nil, fault.Of(err).WithParam("engine")
	}
	m, known := b.Catalogue.Model(a.Name)
	if a.ModelThere == "" || !known {
		offer := ask(ctx, base, a)
		a.ModelThere = offer.Model
		if !known {
			if offer.Context == 0 {
				offer.Context = engine.AssumedContext
			}
			if m, err = b.Catalogue.CreateModel(ctx, catalogue.ModelInput{Name: a.Name, Context: offer.Context}, by); err != nil {
				return ids.Nil, err
			}
		}
	}
	name, err := b.nameFor(ctx, by, a, base)
	if err != nil {
		return ids.Nil, err
	}
	_, err = b.Catalogue.Attach(ctx, catalogue.AttachInput{Name: name, URL: base, Engine: a.Engine, PublicModel: a.Name, UpstreamModel: a.ModelThere, Key: a.Key}, by)
	return m.ID, rename(err, attachFields)
}

// ask finds what an engine calls the model and how long its context is: the model that was named, else the one of the
// public name, else the only one there. An engine that is not up yet may be attached all the same.
func ask(ctx context.Context, base string, a admin.Attachment) engine.Offer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	want := a.ModelThere
	if want == "" {
		want = a.Name
	}
	offers, err := engine.Offers(ctx, engine.Keyed(a.Key), base)
	if err != nil {
		return engine.Offer{Model: want}
	}
	for _, o := range offers {
		if o.Model == want {
			return o
		}
	}
	if a.ModelThere == "" && len(offers) == 1 {
		return offers[0]
	}
	return engine.Offer{Model: want}
}

// nameFor is the first of "model/1", "model/2", … that no unit has. The same engine for the same model is a Conflict: the
// form was sent twice.
func (b business) nameFor(ctx context.Context, by tenants.Actor, a admin.Attachment, base string) (string, error) {
	units, err := b.Catalogue.List(ctx, by)
	if err != nil {
		return "", err
	}
	taken := map[string]bool{}
	for _, u := range units {
		if u.Attached && u.URL == base && u.Model == a.Name && u.UpstreamModel == a.ModelThere {
			return "", fault.New(fault.Conflict, "This engine is attached to %s already, as %s.", a.Name, u.Name).WithParam("url").WithCode("unit_attached")
		}
		taken[u.Name] = true
	}
	for i := 1; ; i++ {
		if name := fmt.Sprintf("%s/%d", a.Name, i); !taken[name] {
			return name, nil
		}
	}
}

// Detach takes an attached unit out of service.
func (b business) Detach(ctx context.Context, who session.Viewer, unit ids.ID) error {
	return b.Catalogue.Detach(ctx, unit, staff(who))
}
