package domain

import (
	"context"
	"fmt"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/tenants"
	"millrace/web/admin"
	"millrace/web/session"
)

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
