package control

import (
	"time"

	"millrace/internal/ids"
)

// Request explains one request to the nano-dollar. What was said is not kept.
type Request struct {
	ID            string        `json:"id"`
	OrgID         string        `json:"org_id"`
	ProjectID     string        `json:"project_id"`
	KeyID         string        `json:"key_id"`
	Model         string        `json:"model"`
	ModelID       string        `json:"model_id"`
	PriceID       string        `json:"price_id"`
	USDPerMillion PerMillionUSD `json:"usd_per_million"`
	StartedAt     time.Time     `json:"started_at"`
	FirstTokenAt  *time.Time    `json:"first_token_at,omitempty"`
	EndedAt       time.Time     `json:"ended_at"`
	Status        int           `json:"status"`
	Ending        string        `json:"ending"`
	Streamed      bool          `json:"streamed"`
	Dialect       string        `json:"dialect"`
	ServiceTier   string        `json:"service_tier"`
	Estimated     bool          `json:"estimated"`
	Repriced      bool          `json:"repriced"`
	Tokens        Tokens        `json:"tokens"`
	Charged       Amount        `json:"charged"`
	Overrun       Amount        `json:"overrun"`
	Saved         Amount        `json:"saved"`
	TxnID         string        `json:"txn_id,omitempty"`
	Attempts      []Attempt     `json:"attempts"`
	Quarantine    *Quarantined  `json:"quarantine,omitempty"`
}

// Attempt is one try at a unit, or one engine's part of it; the last one answered.
type Attempt struct {
	ID     string `json:"id"`
	UnitID string `json:"unit_id"`
	Note   string `json:"note,omitempty"`
	Leg    string `json:"leg,omitempty"`
}

const attemptPrefix = "att"

func (a *api) getRequest(c *call, _ none) (Request, error) {
	org, id, err := c.inOrg("request", ids.Request)
	if err != nil {
		return Request{}, err
	}
	r, err := a.Books.Request(c, c.actor, org, id)
	if err != nil {
		return Request{}, err
	}
	e := r.Event
	out := Request{ID: ids.Format(ids.Request, e.ID), OrgID: ids.Format(ids.Org, e.Org), ProjectID: ids.Format(ids.Project, e.Project),
		KeyID: ids.Format(ids.Key, e.Key), Model: r.Model, ModelID: ids.Format(ids.Model, e.Model), PriceID: ids.Format(ids.Price, e.PriceVersion),
		USDPerMillion: perMillionOf(r.Prices), StartedAt: milli(e.StartedMS), EndedAt: milli(e.EndedMS), Status: e.Status,
		Ending: string(e.Ending), Streamed: e.Streamed, Dialect: e.Dialect, ServiceTier: e.Service.String(), Estimated: e.Estimated, Repriced: r.Repriced,
		Tokens: tokensOf(e.Usage), Charged: amount(r.Charged), Overrun: amount(r.Overrun), Saved: amount(r.Saved),
		TxnID: format(ids.Txn, r.Txn), Attempts: make([]Attempt, len(e.Attempts))}
	if e.FirstTokenMS != 0 {
		at := milli(e.FirstTokenMS)
		out.FirstTokenAt = &at
	}
	if r.Aside != nil {
		aside := quarantinedOf(*r.Aside)
		out.Quarantine = &aside
	}
	for i, t := range e.Attempts {
		out.Attempts[i] = Attempt{ID: ids.Format(attemptPrefix, t.ID), UnitID: format(ids.Unit, t.Unit), Note: t.Note, Leg: string(t.Leg)}
	}
	return out, nil
}

func milli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
