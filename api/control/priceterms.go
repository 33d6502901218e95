package control

import (
	"fmt"
	"time"

	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// PriceTerms is how prices depend on the prompt's length, the time of the week and the service tier.
type PriceTerms struct {
	Tiers           []PriceTier   `json:"tiers,omitempty"`
	Windows         []PriceWindow `json:"windows,omitempty"`
	BatchPercent    *int64        `json:"batch_percent,omitempty"`
	PriorityPercent *int64        `json:"priority_percent,omitempty"`
}

// PriceTier is the prices of requests whose prompt is longer than so many tokens.
type PriceTier struct {
	AbovePromptTokens int64         `json:"above_prompt_tokens"`
	USDPerMillion     PerMillionUSD `json:"usd_per_million"`
}

// PriceWindow is a span of some days of the week, in UTC, at a percentage of every price.
type PriceWindow struct {
	Days    []string `json:"days,omitempty"` // none = every day
	From    string   `json:"from"`
	To      string   `json:"to"`
	Percent int64    `json:"percent"`
}

func termsOf(t *price.Terms) (out PriceTerms) {
	out.BatchPercent, out.PriorityPercent = percentOf(t.Batch), percentOf(t.Priority)
	for _, tier := range t.Tiers {
		out.Tiers = append(out.Tiers, PriceTier{tier.Above, perMillionOf(tier.Prices)})
	}
	for _, w := range t.Windows {
		out.Windows = append(out.Windows, PriceWindow{w.Days.Names(), price.Clock(w.From), price.Clock(w.To), w.Percent})
	}
	return out
}

// percentOf is absent for a tier that is not offered.
func percentOf(p int64) *int64 {
	if p == 0 {
		return nil
	}
	return &p
}

// percent reads a tier's percentage. 0 is refused: whoever sends it may mean a free tier, and would get one that is not offered.
func percent(name string, p *int64) (int64, error) {
	switch {
	case p == nil:
		return 0, nil
	case *p == 0:
		return 0, fault.New(fault.Invalid, "A percentage is 1 or more. Leave it out for a service tier that is not offered.").WithParam(name)
	}
	return *p, nil
}

func (t *PriceTerms) read() (out price.Terms, err error) {
	if out.Batch, err = percent("batch_percent", t.BatchPercent); err != nil {
		return out, err
	}
	if out.Priority, err = percent("priority_percent", t.PriorityPercent); err != nil {
		return out, err
	}
	for i, tier := range t.Tiers {
		next := price.Tier{Above: tier.AbovePromptTokens}
		if next.Prices, err = tier.USDPerMillion.read(fmt.Sprintf("terms.tiers[%d].usd_per_million", i)); err != nil {
			return out, err
		}
		out.Tiers = append(out.Tiers, next)
	}
	for i, w := range t.Windows {
		window, err := price.ParseWindow(w.Days, w.From, w.To, w.Percent)
		if err != nil {
			return out, fault.New(fault.Invalid, "A window has days like \"mon\" and times like \"22:00\", at the latest \"24:00\".").
				WithParam(fmt.Sprintf("terms.windows[%d]", i)).WithCause(err)
		}
		out.Windows = append(out.Windows, window)
	}
	return out, nil
}

// PricePreview is what the newest traffic would have cost under a price that is not made.
type PricePreview struct {
	From      time.Time     `json:"from"`
	To        time.Time     `json:"to"`
	Shortened bool          `json:"shortened"`
	Customers []PreviewLine `json:"customers"`
	Others    PreviewSum    `json:"others"`
	Total     PreviewSum    `json:"total"`
	Cost      *Amount       `json:"cost,omitempty"`
	Doubts    []string      `json:"doubts"`
}

// PreviewLine is one customer's traffic.
type PreviewLine struct {
	OrgID      string `json:"org_id"`
	Name       string `json:"name"`
	Requests   int64  `json:"requests"`
	Before     Amount `json:"before"`
	After      Amount `json:"after"`
	Difference Amount `json:"difference"`
}

// PreviewSum is the traffic of several.
type PreviewSum struct {
	Customers  int    `json:"customers"`
	Requests   int64  `json:"requests"`
	Before     Amount `json:"before"`
	After      Amount `json:"after"`
	Difference Amount `json:"difference"`
}

func previewSum(l price.PreviewLine) PreviewSum {
	return PreviewSum{l.Customers, l.Requests, amount(l.Before), amount(l.After), amount(l.After - l.Before)}
}

func (a *api) previewPrice(c *call, in NewPrice) (PricePreview, error) {
	d, err := a.draft(c, in)
	if err != nil {
		return PricePreview{}, err
	}
	p, err := a.Prices.Preview(c, c.actor, d)
	if err != nil {
		return PricePreview{}, err
	}
	out := PricePreview{From: p.From, To: p.To, Shortened: p.Shortened, Customers: []PreviewLine{}, Others: previewSum(p.Others), Total: previewSum(p.Total),
		Doubts: append([]string{}, p.Doubts...)}
	for _, l := range p.Customers {
		out.Customers = append(out.Customers, PreviewLine{ids.Format(ids.Org, l.Org), l.Name, l.Requests, amount(l.Before), amount(l.After), amount(l.After - l.Before)})
	}
	if p.Cost != nil {
		cost := amount(*p.Cost)
		out.Cost = &cost
	}
	return out, nil
}

// PriceContract gives a customer another book for a while.
type PriceContract struct {
	ID        string     `json:"id"`
	OrgID     string     `json:"org_id"`
	Book      string     `json:"book"`
	StartsAt  time.Time  `json:"starts_at"`
	EndsAt    *time.Time `json:"ends_at,omitempty"`
	Note      string     `json:"note"`
	CreatedBy string     `json:"created_by"`
	CreatedAt time.Time  `json:"created_at"`
}

func contractOf(c price.Contract) PriceContract {
	return PriceContract{ID: ids.Format(ids.Pact, c.ID), OrgID: ids.Format(ids.Org, c.Org), Book: c.Book, StartsAt: c.StartsAt, EndsAt: c.EndsAt, Note: c.Note,
		CreatedBy: c.CreatedBy, CreatedAt: c.CreatedAt}
}

func (a *api) listContracts(c *call, _ none) (Page[PriceContract], error) {
	org, err := c.org()
	if err != nil {
		return Page[PriceContract]{}, err
	}
	list, err := a.Prices.Contracts(c, c.actor, org)
	return all(list, contractOf), err
}

// NewContract makes a contract.
type NewContract struct {
	Book     string     `json:"book"`
	StartsAt *time.Time `json:"starts_at,omitempty"`
	EndsAt   *time.Time `json:"ends_at,omitempty"`
	Note     string     `json:"note,omitempty"`
}

func (a *api) createContract(c *call, in NewContract) (PriceContract, error) {
	org, err := c.org()
	if err != nil {
		return PriceContract{}, err
	}
	n := price.NewContract{Org: org, Book: in.Book, EndsAt: in.EndsAt, Note: in.Note}
	if n.StartsAt, err = moment(in.StartsAt, "starts_at"); err != nil {
		return PriceContract{}, err
	}
	made, err := a.Prices.AddContract(c, c.actor, n)
	return contractOf(made), err
}

// ContractEnd moves a contract's end.
type ContractEnd struct {
	EndsAt *time.Time `json:"ends_at,omitempty"` // absent = as soon as possible
}

func (a *api) endContract(c *call, in ContractEnd) (PriceContract, error) {
	org, id, err := c.inOrg("contract", ids.Pact)
	if err != nil {
		return PriceContract{}, err
	}
	at, err := moment(in.EndsAt, "ends_at")
	if err != nil {
		return PriceContract{}, err
	}
	ended, err := a.Prices.EndContract(c, c.actor, org, id, at)
	return contractOf(ended), err
}
