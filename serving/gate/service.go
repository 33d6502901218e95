package gate

import (
	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
)

// Service tiers as OpenAI's clients name them.
const (
	serviceDefault  = "default"
	serviceFlex     = "flex"
	servicePriority = "priority"
)

func serviceName(s usage.Service) string {
	switch s {
	case usage.Priority:
		return servicePriority
	case usage.Batch:
		return serviceFlex
	}
	return serviceDefault
}

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

// servesAny reports whether any of the units can. A tier that costs another price must be another service.
func servesAny(units []*catalogue.Unit, s usage.Service) error {
	for _, u := range units {
		if serves(u, s) {
			return nil
		}
	}
	return fault.New(fault.Invalid, "This model is not served at the service tier %s. Leave service_tier out, or send \"default\".", serviceName(s)).
		WithCode("unsupported_value").WithParam("service_tier")
}
