package openai_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"millrace/billing/price"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/engine"
)

// pricelist has one price, with every kind of term, for customers whose contract is about the book "deal".
type pricelist struct{}

var deal = price.Version{ID: ids.New(), Prices: usage.Prices{usage.Input: 150_000, usage.Cached: 15_000, usage.Output: 600_000, usage.Requests: 1_000_000_000},
	Terms: price.Terms{Tiers: []price.Tier{{Above: 128_000, Prices: usage.Prices{usage.Input: 300_000, usage.Output: 1_200_000}}},
		Windows: []price.Window{{Days: 1<<time.Saturday | 1<<time.Sunday, From: 0, To: 6*60 + 30, Percent: 50}}, Batch: 50, Priority: 175}}

func (pricelist) BookOf(_ ids.ID, own string, _ time.Time) string { return own + "'s contract" }

func (pricelist) At(_ ids.ID, book string, _ time.Time) (*price.Version, error) {
	if book != "standard's contract" {
		panic("asked for " + book)
	}
	return &deal, nil
}

// Every price is in the list of models, as decimal strings in USD per token and per request.
func TestModelsCarryPrices(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	_, body := s.do("GET", "/v1/models", "")
	var list struct {
		Data []struct{ Pricing json.RawMessage }
	}
	if err := json.Unmarshal(body, &list); err != nil || len(list.Data) != 1 {
		t.Fatalf("%v %s", err, body)
	}
	prices := func(input, output, cached, request string) string {
		return `"prompt":"` + input + `","completion":"` + output + `","input_cache_read":"` + cached +
			`","input_cache_write":"0","internal_reasoning":"0","image":"0","audio":"0","request":"` + request + `"`
	}
	want := `{"currency":"USD","id":"` + ids.Format(ids.Price, deal.ID) + `",` + prices("0.00000015", "0.0000006", "0.000000015", "0.001") +
		`,"tiers":[{"above_prompt_tokens":128000,` + prices("0.0000003", "0.0000012", "0", "0") +
		`}],"windows":[{"days":["sat","sun"],"from":"00:00","to":"06:30","percent":50}]}`
	if string(list.Data[0].Pricing) != want { // the engine is attached, so no service tier is offered
		t.Errorf("%s\nwant\n%s", list.Data[0].Pricing, want)
	}
	s.Model.Units[0].Attached = false
	_, body = s.do("GET", "/v1/models/acme/test", "")
	if !bytes.Contains(body, []byte(`"service_tiers":{"flex":50,"priority":175}`)) {
		t.Errorf("%s", body)
	}
}
