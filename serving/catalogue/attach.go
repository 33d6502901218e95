package catalogue

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// AttachInput is an engine or provider that someone already runs.
type AttachInput struct {
	Name          string
	URL           string
	Engine        string // engine.Family
	PublicModel   string // of a model that exists
	UpstreamModel string // the name the engine knows; "" = PublicModel
	Key           string // sent as a bearer; "" = none
	Replace       bool   // a unit of this name is changed to this instead of being a Conflict
}

// attachAudit is what the audit log keeps: no key.
type attachAudit struct {
	Name, URL, Engine, PublicModel, UpstreamModel string
	HasKey                                        bool
}

const maxUnitName = 100

func (in *AttachInput) validate() (err error) {
	if in.Name = strings.TrimSpace(in.Name); in.Name == "" || len(in.Name) > maxUnitName || strings.ContainsAny(in.Name, "~\r\n") {
		return fault.New(fault.Invalid, "Give the engine a name of at most %d characters.", maxUnitName).WithParam("name")
	}
	if in.URL, err = engine.CleanBase(in.URL); err != nil {
		return fault.Of(err).WithParam("url")
	}
	if _, err = engine.Lookup(engine.Family(in.Engine)); err != nil {
		return fault.Of(err).WithParam("engine")
	}
	if in.UpstreamModel == "" {
		in.UpstreamModel = in.PublicModel
	}
	if strings.ContainsAny(in.Key, "\r\n") {
		return fault.New(fault.Invalid, "The key holds a line break.").WithParam("key")
	}
	return nil
}

// Attach makes a unit of an engine that someone already runs. It gets requests at once: nothing is asked of the engine
// first. An unknown model is NotFound, a name in use a Conflict.
func (c *Catalogue) Attach(ctx context.Context, in AttachInput, by tenants.Actor) (ids.ID, error) {
	if err := by.RequireOperator(); err != nil {
		return ids.Nil, err
	}
	if err := in.validate(); err != nil {
		return ids.Nil, err
	}
	now := c.o.Clock.Now().UTC()
	id := ids.New()
	err := c.o.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		model, err := q.New(tx).ModelByName(ctx, in.PublicModel)
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.NotFound, "There is no model %q.", in.PublicModel).WithCode("model_not_found").WithParam("model")
		}
		if err != nil {
			return err
		}
		old, err := q.New(tx).UnitByName(ctx, in.Name)
		action := "unit.attach"
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			_, err = q.New(tx).InsertAttachedUnit(ctx, q.InsertAttachedUnitParams{ID: id, Name: in.Name, ModelID: model.ID, Engine: in.Engine,
				UpstreamModel: in.UpstreamModel, BaseUrl: in.URL, SealedKey: c.sealed(id, in.Key), CreatedAt: now})
		case err == nil && in.Replace && old.HostID == nil && old.Parts == 0:
			id, action = old.ID, "unit.change"
			_, err = q.New(tx).UpdateAttachedUnit(ctx, q.UpdateAttachedUnitParams{ID: id, ModelID: model.ID, Engine: in.Engine,
				UpstreamModel: in.UpstreamModel, BaseUrl: in.URL, SealedKey: c.sealed(id, in.Key)})
		case err == nil:
			return fault.New(fault.Conflict, "There already is a unit %q.", in.Name).WithCode("name_taken").WithParam("name")
		}
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: action, Target: ids.Format(ids.Unit, id), At: now,
			After: attachAudit{in.Name, in.URL, in.Engine, in.PublicModel, in.UpstreamModel, in.Key != ""}})
	})
	if err != nil {
		return ids.Nil, taken(err, "unit", in.Name)
	}
	c.changed(ctx)
	return id, nil
}

func (c *Catalogue) sealed(unit ids.ID, key string) []byte {
	if key == "" {
		return nil
	}
	return c.o.Sealer.Seal([]byte(key), sealContext(unit))
}

// Detach takes an attached unit away: no new requests go there, running ones end.
func (c *Catalogue) Detach(ctx context.Context, unit ids.ID, by tenants.Actor) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	now := c.o.Clock.Now().UTC()
	err := c.o.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		u, err := q.New(tx).UnitByID(ctx, unit)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && (u.HostID != nil || u.Parts > 0) {
			return fault.New(fault.NotFound, "There is no such attached unit.").WithCode("unit_not_found")
		}
		if err != nil {
			return err
		}
		if err := q.New(tx).RemoveUnit(ctx, q.RemoveUnitParams{ID: unit, RemovedAt: &now}); err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "unit.detach", Target: ids.Format(ids.Unit, unit), At: now,
			Before: map[string]string{"name": u.Name, "url": u.BaseUrl}})
	})
	if err != nil {
		return err
	}
	c.changed(ctx)
	return nil
}
