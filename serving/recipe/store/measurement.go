package store

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Measure stores what was measured of the recipe of this name and digest. It becomes the cost model that routing goes by.
func (s *Recipes) Measure(ctx context.Context, name, digest string, m Measurement, by tenants.Actor) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	if err := m.check(); err != nil {
		return err
	}
	cost, err := json.Marshal(m.Cost)
	if err != nil {
		return err
	}
	return s.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		row, err := q.New(tx).RecipeByDigest(ctx, q.RecipeByDigestParams{Name: name, Digest: digest})
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.NotFound, "There is no recipe %q with this digest: upload the text that was measured first.", name).WithCode("recipe_not_found")
		}
		if err != nil {
			return err
		}
		err = q.New(tx).AddMeasurement(ctx, q.AddMeasurementParams{ID: ids.New(), RecipeID: row.ID, Hardware: m.Hardware, Cost: cost, Report: m.Report, CreatedBy: by.Name()})
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "recipe.measure", Target: name, At: s.Clock.Now().UTC(), After: m.Cost})
	})
}

func (m *Measurement) check() error {
	c := &m.Cost
	if min(c.A0, c.A1, c.B0, c.B1, c.B2, c.Error) < 0 || c.A1 == 0 && c.A0 == 0 || c.B0 == 0 && c.B1 == 0 && c.B2 == 0 {
		return fault.New(fault.Invalid, "Times are not negative, and not all zero.").WithParam("cost")
	}
	if c.From == "" || len(c.From) > maxFrom {
		return fault.New(fault.Invalid, "Say where it was measured, in at most %d bytes.", maxFrom).WithParam("cost.from")
	}
	if len(m.Hardware) > maxHardware {
		return fault.New(fault.Invalid, "Give at most %d bytes.", maxHardware).WithParam("hardware")
	}
	if len(m.Report) > MaxReportBytes {
		return fault.New(fault.Invalid, "A report has at most %d KiB.", MaxReportBytes>>10).WithParam("report")
	}
	if len(m.Report) == 0 {
		m.Report = json.RawMessage("{}")
	}
	// Written anew, it has no lone surrogates and no numbers that the database cannot keep.
	var report any
	if err := json.Unmarshal(m.Report, &report); err != nil {
		return fault.New(fault.Invalid, "The report is no JSON.").WithParam("report").WithCause(err)
	}
	var err error
	m.Report, err = json.Marshal(report)
	return err
}

// Measurements lists a recipe's, the newest first.
func (s *Recipes) Measurements(ctx context.Context, id ids.ID, by tenants.Actor) (all []Measurement, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = s.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).ListMeasurements(ctx, q.ListMeasurementsParams{RecipeID: id, Most: MaxMeasurements})
		if err != nil {
			return err
		}
		for _, r := range rows {
			m := Measurement{ID: r.ID, Hardware: r.Hardware, Report: r.Report, By: r.CreatedBy, At: r.CreatedAt}
			if err := json.Unmarshal(r.Cost, &m.Cost); err != nil {
				return err
			}
			all = append(all, m)
		}
		return nil
	})
	return all, err
}
