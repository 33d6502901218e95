package catalogue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/tenants"
)

// UnitInfo is a unit as operators see it.
type UnitInfo struct {
	ID            ids.ID
	Name          string
	Model         string // public name
	ModelID       ids.ID
	Engine        engine.Family
	Label         string // the engine's name for people; says when it is simulated
	Attached      bool
	URL           string // attached only
	HasKey        bool
	Host          string // placed only
	HostID        ids.ID
	UpstreamModel string
	Wanted        string // serving, draining, stopped
	Parts         int    // engines, when there are several: then it has no host of its own
	Planned       bool   // a plan put it there
	State         string // of a planned one, as serving/fleet keeps it
	StateText     string // and why
	Created       time.Time
}

// List gives every unit, by model and name.
func (c *Catalogue) List(ctx context.Context, by tenants.Actor) ([]UnitInfo, error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	var rows []q.ListUnitsRow
	err := c.o.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		rows, err = q.New(tx).ListUnits(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	list := make([]UnitInfo, len(rows))
	for i, r := range rows {
		list[i] = UnitInfo{ID: r.ID, Name: r.Name, Model: r.ModelName, ModelID: r.ModelID, Engine: engine.Family(r.Engine), Label: r.Engine,
			Attached: r.HostID == nil && r.Parts == 0, Parts: int(r.Parts), Planned: r.Planned, State: r.State, StateText: r.StateText, URL: r.BaseUrl, HasKey: r.HasKey, Host: r.HostName, UpstreamModel: r.UpstreamModel,
			Wanted: r.Wanted, Created: r.CreatedAt}
		if r.HostID != nil {
			list[i].HostID = *r.HostID
		}
		if d, err := engine.Lookup(engine.Family(r.Engine)); err == nil {
			list[i].Label = d.Label()
		}
	}
	return list, nil
}
