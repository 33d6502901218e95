package gate

import (
	"context"
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Pricer gives the price version that holds for an organization, whose own price book is given, and a model at a moment and
// a service tier. It must not block: it reads a snapshot. No price is a fault: nothing unpriced is served. So is a tier that the version does not offer.
type Pricer interface {
	Quote(org, model ids.ID, book string, at time.Time, s usage.Service) (usage.Quote, error)
}

// Payer is who pays for a request: every scope whose budgets apply.
type Payer struct {
	Org, Project, Key ids.ID
	TimeZone          string // IANA name: the org's periods are computed in it
}

// Budgets takes upper bounds from every budget of a payer at once, all or none. Too little money is a fault of kind
// OutOfCredit; past the gateway's validity it is Unavailable.
type Budgets interface {
	Hold(ctx context.Context, p Payer, amount money.Nano) (Hold, error)
}

// Hold is money set aside for one running request. Settle ends it and must be called exactly once.
type Hold interface {
	// Extend raises the hold by amount, or fails and leaves it as it was.
	Extend(ctx context.Context, amount money.Nano) error
	// Settle charges an amount (never above what is held) and frees the rest.
	Settle(charge money.Nano)
	Epoch() ids.ID
	Budgets() []ids.ID
	OrgBudget() ids.ID
}

// UsageLog keeps what happened. Append takes the event over (it is not changed afterwards) and never blocks for long; the
// channel is closed once the event is safe. Ready is nil while new paid requests may be admitted, else a fault of kind
// Unavailable with a time to retry.
type UsageLog interface {
	Append(e *usage.Event) <-chan struct{}
	Ready() error
}
