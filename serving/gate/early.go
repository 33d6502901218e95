package gate

import (
	"context"

	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants/keys"
	"millrace/tenants/limits"
)

// Early is what a request takes before it is known what it says: its share of its key's limits. Whoever is over them, or can
// pay for nothing, makes nobody read what the request continues from. It ends by Admit, by CountTokens or by End.
type Early struct{ lease limits.Lease }

// earlyTokens is what is taken of a limit of tokens per minute: a key that has used it up is refused.
const earlyTokens = 1

// Early takes a request's share of its key's limits, and sees that the shortest prompt could be paid for.
func (g *Gate) Early(ctx context.Context, c *keys.Principal, model string) (*Early, error) {
	lease, err := g.take(c, earlyTokens)
	if err != nil {
		return nil, err
	}
	if err := g.payable(ctx, c, model); err != nil {
		lease.Cancel()
		return nil, err
	}
	return &Early{lease}, nil
}

// End ends one that is not admitted. It counts as a request: what was read for it was read.
func (e *Early) End() {
	if e != nil {
		e.lease.Done(0)
	}
}

// take gives a request's share of its key's limits.
func (g *Gate) take(c *keys.Principal, tokens int64) (limits.Lease, error) {
	return g.Limits.Take(c.Key, limits.Limits{RPM: c.RPM, TPM: c.TPM, Concurrency: c.Concurrency}, tokens)
}

// payable holds what one token of a prompt costs, for a moment.
func (g *Gate) payable(ctx context.Context, c *keys.Principal, name string) error {
	model, err := g.model(name)
	if err != nil {
		return err
	}
	quote, err := g.Prices.Quote(c.Org, model.ID, c.PriceBook, g.Clock.Now(), usage.Ordinary)
	if err != nil {
		return err
	}
	p := quote.Most(1)
	cost, _ := money.Cost(1, p.Dearest(usage.Input)) // one token's price is one that can be
	sum, _ := money.Add(cost, p[usage.Requests])
	hold, err := g.Budgets.Hold(ctx, payer(c), sum.CeilNano())
	if err == nil {
		hold.Settle(0)
	}
	return err
}

func payer(c *keys.Principal) Payer {
	return Payer{Org: c.Org, Project: c.Project, Key: c.Key, TimeZone: c.TimeZone}
}
