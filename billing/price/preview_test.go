package price_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// traffic books a request as the rater does, as far as a preview reads it.
func (h house) traffic(t *testing.T, org, model ids.ID, at time.Time, service usage.Service, u usage.Vector, charged money.Nano) {
	t.Helper()
	id := ids.New()
	run := func(sql string, args ...any) {
		if err := h.exec(t, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("select ensure_day($1::date)", at.UTC())
	run(`insert into usage_events (org_id, day, id, project_id, key_id, model_id, price_version_id, epoch_id, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
		reasoning_tokens, image_tokens, audio_tokens, requests, charged_nano, ending, status, estimated, streamed, dialect, started_at, ended_at, service_tier)
		values ($1, $2::date, $3, $3, $3, $4, $3, $3, $6, $7, 0, $8, 0, 0, 0, 1, $9, 'complete', 200, false, true, 'chat', $5, $5, $10)`,
		org, at.UTC(), id, model, at, u[usage.Input], u[usage.Cached], u[usage.Output], int64(charged), string(service))
	run(`insert into usage_rollups (org_id, bucket, project_id, key_id, model_id, requests, errors, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
		image_tokens, audio_tokens, charged_nano, overrun_nano, saved_nano, ttft_ms_sum, ttft_count, decode_ms_sum)
		values ($1, date_bin('15 minutes', $4::timestamptz, 'epoch'), $2, $2, $3, 1, 0, $5, $6, 0, $7, 0, 0, 0, $8, 0, 0, 0, 0, 0)`,
		org, id, model, at, u[usage.Input], u[usage.Cached], u[usage.Output], int64(charged))
}

// known says what serving cost.
type known struct {
	cost money.Nano
	ok   bool
}

func (k known) ServingCost(context.Context, ids.ID, time.Time, time.Time) (money.Nano, bool, error) {
	return k.cost, k.ok, nil
}

// The traffic of the last thirty days is priced anew under a draft: of the customers that the draft would reach, and to the
// same sums from rollups as from single requests.
func TestAPreviewPricesTrafficAnew(t *testing.T) {
	h := open(t)
	model, other := h.model(t, "acme/llama", false), h.model(t, "acme/other", false)
	h.create(t, price.Draft{Model: model, Prices: list(2)})
	h.create(t, price.Draft{Model: model, Book: "deal", Prices: list(1), Confirm: "acme/llama"})
	small, large, agreed := h.org(t, price.Standard), h.org(t, "unpriced-book"), h.org(t, "deal")
	now := h.clock.Now()
	u := usage.Vector{usage.Input: 1000, usage.Cached: 500, usage.Output: 100}
	h.traffic(t, small, model, now.Add(-time.Hour), usage.Ordinary, u, 2_900_000)
	h.traffic(t, large, model, now.Add(-2*time.Hour), usage.Ordinary, u, 2_900_000)
	h.traffic(t, large, model, now.Add(-3*time.Hour), usage.Ordinary, u, 2_900_000)
	h.traffic(t, agreed, model, now.Add(-time.Hour), usage.Ordinary, u, 1_450_000)
	h.traffic(t, small, other, now.Add(-time.Hour), usage.Ordinary, u, 77)
	h.traffic(t, small, model, now.AddDate(0, 0, -32), usage.Ordinary, u, 77)

	preview := func(d price.Draft) price.Preview {
		t.Helper()
		d.Model = model
		p, err := h.service.Preview(t.Context(), tenants.System(), d)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := func(p price.Preview, customers int, requests int64, before, after money.Nano) {
		t.Helper()
		if l := p.Total; l.Customers != customers || l.Requests != requests || l.Before != before || l.After != after {
			t.Errorf("%+v; want %d customers, %d requests, %d -> %d", l, customers, requests, before, after)
		}
	}
	const each = 4_350_000 // 1000 × 3 + 500 × 0.3 + 100 × 12 micro-dollars
	flat := preview(price.Draft{Prices: list(3)})
	want(flat, 2, 3, 8_700_000, 3*each)
	if len(flat.Customers) != 2 || flat.Customers[0].Org != large || flat.Customers[0].After != 2*each || flat.Customers[0].Name != "Acme" || flat.Cost != nil || flat.Shortened {
		t.Errorf("%+v", flat)
	}
	always := price.Terms{Windows: []price.Window{{From: 0, To: 24 * 60, Percent: 100}}}
	want(preview(price.Draft{Prices: list(3), Terms: always}), 2, 3, 8_700_000, 3*each) // from single requests
	want(preview(price.Draft{Book: "deal", Prices: list(1)}), 1, 1, 1_450_000, each/3)
	want(preview(price.Draft{Book: "of-nobody", Prices: list(1)}), 0, 0, 0, 0)

	fee := list(3)
	fee[usage.Requests] = 1_000_000_000
	want(preview(price.Draft{Prices: fee}), 2, 3, 8_700_000, 3*(each+1_000_000))
	tiers := price.Terms{Tiers: []price.Tier{{Above: 1499, Prices: usage.Prices{usage.Output: 10_000_000}}}}
	want(preview(price.Draft{Prices: list(3), Terms: tiers}), 2, 3, 8_700_000, 3*1_000_000)
	tiers.Tiers[0].Above = 1500
	want(preview(price.Draft{Prices: list(3), Terms: tiers}), 2, 3, 8_700_000, 3*each)

	// One hour of the week is half as dear: the one in which the newest request began.
	at := now.Add(-time.Hour).UTC()
	hour := price.Terms{Windows: []price.Window{{Days: 1 << at.Weekday(), From: at.Hour() * 60, To: at.Hour()*60 + 60, Percent: 50}}, Priority: 300}
	want(preview(price.Draft{Prices: list(3), Terms: hour}), 2, 3, 8_700_000, 2*each+each/2)
	h.traffic(t, small, model, now.Add(-5*time.Hour), usage.Priority, u, 0)
	h.traffic(t, small, model, now.Add(-5*time.Hour), usage.Batch, u, 0)
	want(preview(price.Draft{Prices: list(3), Terms: hour}), 2, 5, 8_700_000, 2*each+each/2+3*each+each)

	if _, err := h.service.Preview(t.Context(), tenants.Actor{Org: small, Role: tenants.Owner}, price.Draft{Model: model, Prices: list(3)}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a customer saw it: %v", err)
	}
}

// A price that brings less than serving costs needs the typed name; where nothing is known of costs, nothing is said.
func TestALossIsDoubted(t *testing.T) {
	h := open(t)
	model, org := h.model(t, "acme/llama", false), h.org(t, price.Standard)
	h.create(t, price.Draft{Model: model, Prices: list(2)})
	h.traffic(t, org, model, h.clock.Now().Add(-time.Hour), usage.Ordinary, usage.Vector{usage.Input: 1_000_000}, 2*money.NanoPerUSD)
	next := price.Draft{Model: model, EffectiveAt: h.clock.Now().Add(time.Hour), Prices: list(2)}
	for _, c := range []struct {
		costs price.Costs
		doubt bool
	}{{nil, false}, {known{ok: false, cost: 9 * money.NanoPerUSD}, false}, {known{ok: true, cost: 2 * money.NanoPerUSD}, false}, {known{ok: true, cost: 2_340_000_000}, true}} {
		h.service.SetCosts(c.costs)
		p, err := h.service.Preview(t.Context(), tenants.System(), next)
		if err != nil || (len(p.Doubts) > 0) != c.doubt || (p.Cost != nil) != (c.costs != nil && c.costs.(known).ok) {
			t.Errorf("%+v: %+v, %v", c.costs, p, err)
		}
		_, err = h.service.Create(t.Context(), tenants.System(), next)
		if c.doubt {
			f := fault.Of(err)
			if f.Code != "confirm_prices" || !strings.Contains(f.Message, "it would bring 2.00 USD, less than the 2.34 USD that serving it cost.") {
				t.Errorf("%v", err)
			}
			next.Confirm = "acme/llama"
			h.create(t, next)
		} else if err != nil {
			t.Error(err)
		}
		next.EffectiveAt = next.EffectiveAt.Add(time.Hour)
	}
}
