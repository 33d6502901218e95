package price

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// Limits of a preview.
const (
	previewSpan     = 30 * 24 * time.Hour
	previewBucket   = 15 * time.Minute // of the rollups
	previewLines    = 10               // customers by name
	previewRequests = 500_000          // that are read one by one, where rollups do not tell enough
)

// Costs tells what it cost the operator to serve a model. known=false: nobody has said what its hosts cost.
type Costs interface {
	ServingCost(ctx context.Context, model ids.ID, from, to time.Time) (cost money.Nano, known bool, err error)
}

// Preview is what the newest traffic would have cost under a draft. The customers are those whose book at the draft's
// moment would have led to it.
type Preview struct {
	From, To  time.Time     // the traffic that was priced anew, at most the last 30 days
	Shortened bool          // there was too much traffic to read all 30 days
	Customers []PreviewLine // the largest differences first; at most ten
	Others    PreviewLine   // all further ones together, without Org and Name
	Total     PreviewLine
	Cost      *money.Nano // of serving the model over the same time, to all customers; nil = not known
	Doubts    []string    // what the draft's confirmation will be asked for
}

// PreviewLine is one customer's traffic. Both sums are before credit and caps: what the tokens cost.
type PreviewLine struct {
	Org           ids.ID
	Name          string
	Customers     int
	Requests      int64
	Before, After money.Nano
}

func (l *PreviewLine) add(o PreviewLine) {
	l.Customers += o.Customers
	l.Requests += o.Requests
	l.Before += o.Before
	l.After += o.After
}

// SetCosts says where costs are known. Call it before the service is used.
func (s *Service) SetCosts(c Costs) { s.costs = c }

// Preview prices the last 30 days anew under a draft, without making a version. Operators only.
func (s *Service) Preview(ctx context.Context, by tenants.Actor, d Draft) (p Preview, err error) {
	if err := by.RequireOperator(); err != nil {
		return Preview{}, err
	}
	v, err := d.version(s.clock.Now().UTC().Truncate(time.Microsecond))
	if err != nil {
		return Preview{}, err
	}
	err = s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		model, err := q.New(tx).PricedModel(ctx, d.Model)
		if err != nil {
			return tenants.Found(err, "model")
		}
		before, err := predecessor(ctx, tx, v)
		if err != nil {
			return err
		}
		if p, err = s.preview(ctx, tx, &v); err != nil {
			return err
		}
		if !model.Free {
			doubts, err := s.doubts(ctx, tx, before, &v)
			if err != nil {
				return err
			}
			p.Doubts = append(doubts, p.Doubts...)
		}
		return nil
	})
	return p, err
}

// preview does the work. Its doubts are about the margin alone.
func (s *Service) preview(ctx context.Context, tx pgx.Tx, v *Version) (p Preview, err error) {
	p.To = s.clock.Now().UTC().Truncate(previewBucket).Add(previewBucket) // the running quarter-hour too
	p.From = p.To.Add(-previewSpan)
	queries := q.New(tx)
	flat := v.Terms.Empty() && v.Prices[usage.Requests] == 0 // rollups tell neither lengths nor which requests were charged
	if !flat {
		start, err := queries.PreviewStart(ctx, q.PreviewStartParams{Model: v.Model, Start: p.From, Stop: p.To, MaxRequests: previewRequests})
		if err != nil {
			return p, fmt.Errorf("price: preview: %w", err)
		}
		p.Shortened = start.After(p.From)
		p.From = minTime(start.UTC(), p.To.Add(-previewBucket))
	}
	rows, err := queries.PreviewRollups(ctx, q.PreviewRollupsParams{Model: v.Model, Start: p.From, Stop: p.To})
	if err != nil {
		return p, fmt.Errorf("price: preview: %w", err)
	}
	reached, err := reach(ctx, queries, v, rows)
	if err != nil {
		return p, err
	}
	elsewhere := money.Nano(0) // what customers pay whom the draft does not reach
	lines := map[ids.ID]*PreviewLine{}
	for _, r := range rows {
		if !reached[r.OrgID] {
			elsewhere += money.Nano(r.BeforeNano)
			continue
		}
		l := &PreviewLine{Org: r.OrgID, Name: r.Name, Customers: 1, Requests: r.Requests, Before: money.Nano(r.BeforeNano)}
		lines[r.OrgID] = l
		if flat {
			l.After = sum(&v.Prices, usage.Vector{usage.Input: r.Input, usage.Cached: r.Cached, usage.CacheWrite: r.CacheWrite, usage.Output: r.Output,
				usage.Reasoning: r.Reasoning, usage.Image: r.Image, usage.Audio: r.Audio})
		}
	}
	if !flat {
		if err := v.priceEvents(ctx, queries, p.From, p.To, lines); err != nil {
			return p, err
		}
	}
	p.sort(lines)
	return p, s.margin(ctx, v.Model, &p, elsewhere)
}

// reach tells which organizations' book at the version's moment leads to it.
func reach(ctx context.Context, queries *q.Queries, v *Version, rows []q.PreviewRollupsRow) (map[ids.ID]bool, error) {
	orgs := make([]ids.ID, len(rows))
	for i, r := range rows {
		orgs[i] = r.OrgID
	}
	books, err := queries.PreviewBooks(ctx, q.PreviewBooksParams{Model: v.Model, At: v.EffectiveAt, Orgs: orgs})
	if err != nil {
		return nil, fmt.Errorf("price: preview: %w", err)
	}
	reached := make(map[ids.ID]bool, len(books))
	for _, b := range books {
		reached[b.OrgID] = b.Book == v.Book || v.Book == Standard && !b.Priced
	}
	return reached, nil
}

// priceEvents prices single requests, summed up by what decides their price.
func (v *Version) priceEvents(ctx context.Context, queries *q.Queries, from, to time.Time, lines map[ids.ID]*PreviewLine) error {
	a := q.PreviewEventsParams{Model: v.Model, FromDay: from.AddDate(0, 0, -1), Start: from, Stop: to, Above: v.Terms.Thresholds()}
	for org := range lines {
		a.Orgs = append(a.Orgs, org)
	}
	a.Numbers, a.FromMinutes, a.ToMinutes = v.Terms.WindowMinutes()
	rows, err := queries.PreviewEvents(ctx, a)
	if err != nil {
		return fmt.Errorf("price: preview: %w", err)
	}
	for _, l := range lines {
		l.Requests, l.Before = 0, 0 // of the same requests as After
	}
	for _, r := range rows {
		prices := v.PricesIn(int(r.Win), usage.Service(r.ServiceTier), int(r.Step))
		l := lines[r.OrgID]
		l.Requests += r.Requests
		l.Before += money.Nano(r.BeforeNano)
		l.After += sum(&prices, usage.Vector{usage.Input: r.Input, usage.Cached: r.Cached, usage.CacheWrite: r.CacheWrite, usage.Output: r.Output,
			usage.Reasoning: r.Reasoning, usage.Image: r.Image, usage.Audio: r.Audio, usage.Requests: r.Fees})
	}
	return nil
}

// sum is what many requests' tokens cost: more than one event may. It rounds down, once; the requests' own rounding makes it
// differ from their sum by less than a nano-dollar each.
func sum(p *usage.Prices, tokens usage.Vector) money.Nano {
	total := new(big.Int)
	for c, n := range tokens {
		total.Add(total, new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(p[c]))))
	}
	return money.Nano(total.Quo(total, big.NewInt(int64(money.PicoPerNano))).Int64())
}

// sort puts the largest differences first and adds up the rest.
func (p *Preview) sort(lines map[ids.ID]*PreviewLine) {
	all := make([]PreviewLine, 0, len(lines))
	for _, l := range lines {
		all = append(all, *l)
		p.Total.add(*l)
	}
	size := func(l PreviewLine) money.Nano { return max(l.After-l.Before, l.Before-l.After) }
	slices.SortFunc(all, func(a, b PreviewLine) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(b.Before, a.Before), cmp.Compare(a.Name, b.Name), slices.Compare(a.Org[:], b.Org[:]))
	})
	p.Customers = all[:min(len(all), previewLines)]
	for _, l := range all[len(p.Customers):] {
		p.Others.add(l)
	}
}

// margin compares what the model would bring with what it cost to serve, where that is known.
func (s *Service) margin(ctx context.Context, model ids.ID, p *Preview, elsewhere money.Nano) error {
	if s.costs == nil {
		return nil
	}
	cost, known, err := s.costs.ServingCost(ctx, model, p.From, p.To)
	if err != nil {
		return fmt.Errorf("price: what the model costs: %w", err)
	}
	if !known {
		return nil
	}
	p.Cost = &cost
	if brings := p.Total.After + elsewhere; brings < cost {
		p.Doubts = append(p.Doubts, fmt.Sprintf("at the traffic since %s it would bring %s USD, less than the %s USD that serving it cost.",
			p.From.Format("2 January"), cents(brings), cents(cost)))
	}
	return nil
}

// cents writes an amount in whole cents, for sentences.
func cents(n money.Nano) string {
	const perCent = money.NanoPerUSD / 100
	return fmt.Sprintf("%d.%02d", n/money.NanoPerUSD, n%money.NanoPerUSD/perCent)
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
