package gate

import (
	"slices"

	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
)

// Places in an engine's queue: vLLM takes lower numbers first, and 0 is everybody's.
const (
	rankFirst = -1
	rankLast  = 1
)

func rankOf(s usage.Service) int {
	switch s {
	case usage.Priority:
		return rankFirst
	case usage.Batch:
		return rankLast
	}
	return 0
}

// serves reports whether a unit can serve at a tier: other than the ordinary one takes an engine that we run ourselves with
// a queue by rank.
func serves(u *catalogue.Unit, s usage.Service) bool {
	return s == usage.Ordinary || !u.Attached && u.Driver.Caps().Rank
}

// Serves reports whether any of the units can serve at a tier.
func Serves(units []*catalogue.Unit, s usage.Service) bool {
	return slices.ContainsFunc(units, func(u *catalogue.Unit) bool { return serves(u, s) })
}

// price pins the price. A line of a batch costs the ordinary one where the batch tier is not offered.
func (t *Ticket) price() (err error) {
	c := &t.req.Caller
	t.quote, err = t.gate.Prices.Quote(c.Org, t.model.ID, c.PriceBook, t.start, t.req.Chat.Service)
	if t.req.Batch && fault.Is(err, fault.Invalid) {
		t.quote, err = t.gate.Prices.Quote(c.Org, t.model.ID, c.PriceBook, t.start, usage.Ordinary)
	}
	return err
}

// notServed refuses a tier: one that costs another price must be another service.
func notServed(s usage.Service) error {
	return fault.New(fault.Invalid, "This model is not served at the service tier %s. Leave service_tier out, or send \"default\".", s).
		WithCode("unsupported_value").WithParam("service_tier")
}
