package margin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

const (
	// Every is how often the running hour is made anew.
	Every = 5 * time.Minute
	// settleAfter is how long after its end an hour is final: by then its usage is rated.
	settleAfter = time.Hour
	// lookBack is how far hours are made up for that nobody accrued: with the hosts and prices known now.
	lookBack = 48 * time.Hour
	// accrueTimeout bounds one hour.
	accrueTimeout = 2 * time.Minute
	// slack is how far the time in a request's id may lie from its start.
	slack = time.Hour
	// longest is the longest request that is looked for when busy time is measured.
	longest = time.Hour
	hour    = time.Hour
)

// Run accrues until ctx ends. Several processes may run it.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		if err := s.Accrue(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "margin: costs could not be accrued; the next round makes up for it", "cause", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Accrue makes every hour that is not final, the running one up to now.
func (s *Service) Accrue(ctx context.Context) error {
	now := s.clock.Now().UTC()
	var open []time.Time
	err := s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		open, err = q.New(tx).MarginOpenHours(ctx, q.MarginOpenHoursParams{Since: now.Truncate(hour).Add(-lookBack), Last: now.Truncate(hour)})
		return err
	})
	if err != nil {
		return fmt.Errorf("margin: open hours: %w", err)
	}
	for _, h := range open {
		err := s.db.InTx(ctx, db.System().Timeout(accrueTimeout), func(tx pgx.Tx) error { return accrue(ctx, q.New(tx), h, now) })
		if err != nil {
			return fmt.Errorf("margin: the hour of %s: %w", h.Format(time.RFC3339), err)
		}
	}
	return nil
}

// accrue makes one hour anew.
func accrue(ctx context.Context, r *q.Queries, start, now time.Time) error {
	if err := r.MarginLock(ctx); err != nil {
		return err
	}
	stop := start.Add(hour)
	final := !now.Before(stop.Add(settleAfter))
	if stop.After(now) {
		stop = now
	}
	if !start.Before(stop) {
		return nil
	}
	parts, err := readParts(ctx, r, start, stop)
	if err != nil {
		return err
	}
	if err := r.MarginForget(ctx, start); err != nil {
		return err
	}
	if err := r.MarginHour(ctx, q.MarginHourParams{Hour: start, Until: stop, Final: final}); err != nil {
		return err
	}
	return parts.write(ctx, r, start)
}

// part is one unit on one host, or a host with none.
type part struct {
	host, unit ids.ID
	model      *ids.ID
	gpuMS      int64
	busyMS     int64
	cost       *money.Nano
	idle       money.Nano
	simulated  bool
}

// share is what one customer used of a unit.
type share struct {
	unit, org, model ids.ID
	weighted, tokens int64
}

type parts struct {
	list   []part
	shares []share
}

func readParts(ctx context.Context, r *q.Queries, start, stop time.Time) (*parts, error) {
	hosts, err := r.MarginHosts(ctx, q.MarginHostsParams{Start: start, Stop: stop})
	if err != nil {
		return nil, err
	}
	units, err := r.MarginUnits(ctx, q.MarginUnitsParams{Start: start, Stop: stop})
	if err != nil {
		return nil, err
	}
	early := start.Add(-longest)
	busy, err := r.MarginBusy(ctx, q.MarginBusyParams{Early: early, Start: start, Stop: stop, FromDay: dayOf(early.Add(-slack)), ToDay: dayOf(stop.Add(slack)),
		FromID: firstID(early.Add(-slack)), ToID: firstID(stop.Add(slack))})
	if err != nil {
		return nil, err
	}
	use, err := r.MarginUse(ctx, q.MarginUseParams{Start: start, Stop: stop, FromDay: dayOf(start.Add(-slack)), ToDay: dayOf(stop.Add(slack)),
		FromID: firstID(start.Add(-slack)), ToID: firstID(stop.Add(slack))})
	if err != nil {
		return nil, err
	}
	ran := make(map[ids.ID]int64, len(busy))
	for _, b := range busy {
		ran[b.UnitID] = b.BusyMs
	}
	p := &parts{}
	for _, h := range hosts {
		p.addHost(h, units, ran)
	}
	for _, u := range use {
		p.shares = append(p.shares, shareOf(u))
	}
	return p, nil
}

// addHost splits a host's GPU time over its units: by the GPUs they have; units that do not tell share the others evenly. What nobody
// has is the nil unit's.
func (p *parts) addHost(h q.MarginHostsRow, units []q.MarginUnitsRow, ran map[ids.ID]int64) {
	wall := h.Until.Sub(h.Since).Milliseconds()
	if wall <= 0 {
		return
	}
	var on []q.MarginUnitsRow
	known, silent := int64(0), int64(0)
	for _, u := range units {
		if u.HostID == nil || *u.HostID != h.ID {
			continue
		}
		on, known = append(on, u), known+u.Gpus
		if u.Gpus == 0 {
			silent++
		}
	}
	rest := max(0, h.Gpus-known)
	if silent == 0 && rest > 0 {
		on = append(on, q.MarginUnitsRow{Gpus: rest})
	}
	weights, sum := make([]int64, len(on)), int64(0)
	for i, u := range on {
		weights[i] = u.Gpus * max(silent, 1)
		if u.Gpus == 0 {
			weights[i] = rest
		}
		sum += weights[i]
	}
	for i, ms := range split(wall*h.Gpus, weights, sum) {
		p.add(h, on[i], ms, wall, ran)
	}
}

// split shares a whole out by weights; what rounding leaves goes to the first ones, 1 each.
func split(whole int64, weights []int64, sum int64) []int64 {
	out, left := make([]int64, len(weights)), whole
	for i, w := range weights {
		if sum > 0 {
			out[i] = mulDiv(whole, w, sum)
		}
		left -= out[i]
	}
	for i := int64(0); left > 0 && len(out) > 0; i++ {
		out[i%int64(len(out))]++
		left--
	}
	return out
}

// add is one unit's part of a host; a unit without an id is what nobody used.
func (p *parts) add(h q.MarginHostsRow, u q.MarginUnitsRow, gpuMS, wall int64, ran map[ids.ID]int64) {
	x := part{host: h.ID, gpuMS: gpuMS, simulated: h.Simulated}
	if u.ID != ids.Nil {
		x.unit, x.model = u.ID, &u.ModelID
		x.busyMS = mulDiv(x.gpuMS, min(ran[x.unit], wall), wall)
		x.simulated = x.simulated || simulated(u.Engine)
	}
	if h.GpuHourNano >= 0 {
		cost := money.Nano(mulDiv(h.GpuHourNano, x.gpuMS, hour.Milliseconds()))
		x.cost, x.idle = &cost, cost
		if x.gpuMS > 0 {
			x.idle = cost - money.Nano(mulDiv(int64(cost), x.busyMS, x.gpuMS))
		}
	}
	p.list = append(p.list, x)
}

// simulated names the engine that is no engine.
func simulated(engine string) bool { return engine == "sim" }

func shareOf(u q.MarginUseRow) share {
	v := usage.Vector{usage.Input: u.InputTokens, usage.Cached: u.CachedTokens, usage.CacheWrite: u.CacheWriteTokens, usage.Output: u.OutputTokens,
		usage.Reasoning: u.ReasoningTokens, usage.Image: u.ImageTokens, usage.Audio: u.AudioTokens}
	x := share{unit: u.UnitID, org: u.OrgID, model: u.ModelID, tokens: v.Tokens()}
	for c, n := range v {
		x.weighted += n * Weights[c]
	}
	return x
}

func (p *parts) write(ctx context.Context, r *q.Queries, start time.Time) error {
	busy := map[ids.ID]*money.Nano{} // what the running requests of a unit cost together
	for _, x := range p.list {
		row := q.MarginUnitParams{Hour: start, HostID: x.host, UnitID: x.unit, ModelID: x.model, GpuMs: x.gpuMS, BusyMs: x.busyMS, Simulated: x.simulated}
		if x.cost != nil {
			cost, idle, rest := int64(*x.cost), int64(x.idle), *x.cost-x.idle
			row.CostNano, row.IdleNano = &cost, &idle
			if other := busy[x.unit]; other != nil { // a unit may be on several hosts
				rest += *other
			}
			busy[x.unit] = &rest
		}
		if err := r.MarginUnit(ctx, row); err != nil {
			return err
		}
	}
	slices.SortFunc(p.shares, func(a, b share) int { return slices.Compare(a.unit[:], b.unit[:]) })
	for first := 0; first < len(p.shares); {
		last := first
		for last < len(p.shares) && p.shares[last].unit == p.shares[first].unit {
			last++
		}
		of := p.shares[first:last]
		costs := divide(busy[of[0].unit], of)
		for i, x := range of {
			row := q.MarginOrgParams{Hour: start, UnitID: x.unit, OrgID: x.org, ModelID: x.model, Weighted: x.weighted, Tokens: x.tokens}
			if costs != nil {
				n := int64(costs[i])
				row.CostNano = &n
			}
			if err := r.MarginOrg(ctx, row); err != nil {
				return err
			}
		}
		first = last
	}
	return nil
}

// divide shares a cost out by weighted tokens; what rounding leaves goes to the largest, a nano-dollar each. nil = unknown.
func divide(cost *money.Nano, of []share) []money.Nano {
	if cost == nil {
		return nil
	}
	var whole int64
	for _, x := range of {
		whole += x.weighted
	}
	out := make([]money.Nano, len(of))
	if whole == 0 { // requests without tokens: alike
		for i := range out {
			out[i] = *cost / money.Nano(len(of))
		}
		out[0] += *cost % money.Nano(len(of))
		return out
	}
	rest := *cost
	order := make([]int, len(of))
	for i, x := range of {
		out[i], order[i] = money.Nano(mulDiv(int64(*cost), x.weighted, whole)), i
		rest -= out[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of[b].weighted, of[a].weighted) })
	for i := 0; rest > 0; i++ {
		out[order[i%len(order)]]++
		rest--
	}
	return out
}

// mulDiv is a × b / c, rounded down, without overflow on the way; none is negative and b is at most c, or the result fits.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	n, _ := bits.Div64(hi, lo, uint64(c))
	return int64(n)
}

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * hour) }

// firstID is below every id of a moment and later.
func firstID(at time.Time) (id ids.ID) {
	ms := max(0, at.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}
