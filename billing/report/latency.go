package report

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Latencies come from single requests. They are read from samples of the newest ones, so that a page costs the same
// whatever the traffic.
const (
	sampleAll   = 2_000 // streams behind a quantile
	sampleStep  = 50    // streams behind the median of one step
	sampleLeast = 20    // of each organization, when there are many
	sampleOrgs  = 100   // organizations at most that stand for all: those with the most streams
	sampleUnits = 5_000 // requests of each organization behind a unit's figures
)

// Quantiles of a latency; zero when nothing was measured.
type Quantiles struct{ P50, P95 time.Duration }

// FirstTokens gives the time to first token of streams that began since a moment, over the newest 2,000 of them. For
// ids.Nil it is over the hundred organizations with the most streams, each counted by its share of them.
func (s *Service) FirstTokens(ctx context.Context, by tenants.Actor, org ids.ID, since time.Time) (out Quantiles, err error) {
	err = s.read(ctx, by, org, func(r *q.Queries) error {
		if org == ids.Nil {
			out, err = allFirstTokens(ctx, r, since)
			return err
		}
		row, err := r.ReportFirstTokens(ctx, q.ReportFirstTokensParams{Org: org, SinceDay: since.UTC().Truncate(wholeDay), SinceID: idAt(since), MaxRows: sampleAll})
		out = Quantiles{milliseconds(row.P50), milliseconds(row.P95)}
		return err
	})
	return out, err
}

func allFirstTokens(ctx context.Context, r *q.Queries, since time.Time) (Quantiles, error) {
	counts, err := r.ReportStreams(ctx, since.UTC().Truncate(bucket))
	if err != nil || len(counts) == 0 {
		return Quantiles{}, err
	}
	if len(counts) > sampleOrgs {
		slices.SortFunc(counts, func(a, b q.ReportStreamsRow) int {
			return cmp.Or(cmp.Compare(b.Streams, a.Streams), bytes.Compare(a.OrgID[:], b.OrgID[:]))
		})
		counts = counts[:sampleOrgs]
	}
	streams := make(map[ids.ID]int64, len(counts))
	orgs := make([]ids.ID, len(counts))
	for i, c := range counts {
		orgs[i], streams[c.OrgID] = c.OrgID, c.Streams
	}
	rows, err := r.ReportStreamSamples(ctx, q.ReportStreamSamplesParams{Orgs: orgs, SinceDay: since.UTC().Truncate(wholeDay), SinceID: idAt(since),
		MaxRows: int32(max(sampleAll/len(orgs), sampleLeast))})
	return weigh(rows, streams), err
}

// weigh takes each organization's samples to stand for all of its streams. Rows come by rising latency.
func weigh(rows []q.ReportStreamSamplesRow, streams map[ids.ID]int64) Quantiles {
	sampled := map[ids.ID]int64{}
	for _, row := range rows {
		sampled[row.OrgID]++
	}
	// A sample's weight is streams/sampled; scaled up, so that integers keep it apart.
	const scale = 1 << 20
	weight := func(org ids.ID) int64 { return max(streams[org]*scale/sampled[org], 1) }
	var total int64
	for _, row := range rows {
		total += weight(row.OrgID)
	}
	at := func(percent int64) time.Duration {
		var sum int64
		i := slices.IndexFunc(rows, func(row q.ReportStreamSamplesRow) bool {
			sum += weight(row.OrgID)
			return sum >= total/100*percent
		})
		if i < 0 {
			return 0
		}
		return milliseconds(rows[i].Ms)
	}
	return Quantiles{at(50), at(95)}
}

// FirstTokenSteps gives the median time to first token in each of an organization's spans, of at most 50 of its newest
// streams; 0 where there were none. stops[i] ends the span that starts[i] begins.
func (s *Service) FirstTokenSteps(ctx context.Context, by tenants.Actor, org ids.ID, starts, stops []time.Time) ([]time.Duration, error) {
	p := q.ReportFirstTokenStepsParams{Org: org, MaxRows: sampleStep}
	for i, start := range starts {
		p.Numbers = append(p.Numbers, int32(i))
		p.FromIds, p.ToIds = append(p.FromIds, idAt(start)), append(p.ToIds, idAt(stops[i]))
		p.FromDays, p.ToDays = append(p.FromDays, start.UTC().Truncate(wholeDay)), append(p.ToDays, stops[i].UTC().Truncate(wholeDay))
	}
	out := make([]time.Duration, len(starts))
	err := s.read(ctx, by, org, func(r *q.Queries) error {
		rows, err := r.ReportFirstTokenSteps(ctx, p)
		for _, row := range rows {
			out[row.Number] = milliseconds(row.P50)
		}
		return err
	})
	return out, err
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// UnitTraffic is what a unit answered lately.
type UnitTraffic struct {
	Requests, Errors int64
	Prompt, Cached   int64     // tokens
	First            Quantiles // to the first token
	Token            Quantiles // from one token to the next
}

// UnitTraffic tells it of every unit that answered since a moment, over at most 5,000 requests of each organization.
func (s *Service) UnitTraffic(ctx context.Context, by tenants.Actor, since time.Time) (map[ids.ID]UnitTraffic, error) {
	out := map[ids.ID]UnitTraffic{}
	err := s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		rows, err := r.ReportUnitTraffic(ctx, q.ReportUnitTrafficParams{SinceBucket: since.UTC().Truncate(bucket), SinceDay: since.UTC().Truncate(wholeDay),
			SinceID: idAt(since), MaxRows: sampleUnits})
		for _, x := range rows {
			out[x.Unit] = UnitTraffic{Requests: x.Requests, Errors: x.Errors, Prompt: x.Prompt, Cached: x.Cached, First: Quantiles{milliseconds(x.P50), milliseconds(x.P95)},
				Token: Quantiles{microseconds(x.Step50Us), microseconds(x.Step95Us)}}
		}
		return err
	})
	return out, err
}

// idAt is the smallest UUIDv7 of a moment.
func idAt(t time.Time) (id ids.ID) {
	ms := t.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}
