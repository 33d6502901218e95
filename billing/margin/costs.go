package margin

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/report"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// window is how far back a model's cost per token looks.
const window = 7 * 24 * time.Hour

// ServingCost is what a model's tokens of a span cost: all of them at what a token cost in those of its hours that have a
// price, idle time included. known is false when none has. It asks for no rights: other rooms decide with it and never show
// it to a tenant.
func (s *Service) ServingCost(ctx context.Context, model ids.ID, from, to time.Time) (cost money.Nano, known bool, err error) {
	part, err := s.served(ctx, model, from, to)
	if err != nil || part.Tokens == 0 {
		return 0, false, err
	}
	cells, err := s.revenue.Usage(ctx, tenants.System(), report.Query{From: from.UTC().Truncate(hour), To: to.UTC().Truncate(hour).Add(hour), Step: report.StepTotal, Model: model})
	if err != nil || len(cells) == 0 {
		return 0, err == nil, err
	}
	return money.Nano(mulDiv(part.CostNano, cells[0].Usage.Tokens(), part.Tokens)), true, nil
}

// CostOf is what serving each of some customers cost in [from, to), as far as it is accrued. Whose cost is not known, or who was
// served nothing, is not in it. Operators only.
func (s *Service) CostOf(ctx context.Context, by tenants.Actor, orgs []ids.ID, from, to time.Time) (map[ids.ID]money.Nano, error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	var rows []q.MarginOfOrgsRow
	err := s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		rows, err = q.New(tx).MarginOfOrgs(ctx, q.MarginOfOrgsParams{Orgs: orgs, Start: from, Stop: to})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("margin: costs of customers: %w", err)
	}
	out := make(map[ids.ID]money.Nano, len(rows))
	for _, r := range rows {
		if r.Known {
			out[r.OrgID] = money.Nano(r.CostNano)
		}
	}
	return out, nil
}

// CostPerToken is what a token of a model cost over the last seven days, idle time included; known is false when none of the
// hours that it was served in has a price.
func (s *Service) CostPerToken(ctx context.Context, model ids.ID) (cost money.Pico, known bool, err error) {
	now := s.clock.Now().UTC()
	part, err := s.served(ctx, model, now.Add(-window), now)
	if err != nil || part.Tokens == 0 {
		return 0, false, err
	}
	return money.Pico(mulDiv(part.CostNano, int64(money.PicoPerNano), part.Tokens)), true, nil
}

func (s *Service) served(ctx context.Context, model ids.ID, from, to time.Time) (part q.MarginModelCostRow, err error) {
	err = s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		part, err = q.New(tx).MarginModelCost(ctx, q.MarginModelCostParams{Start: from.UTC().Truncate(hour), Stop: to, Model: model})
		return err
	})
	return part, err
}
