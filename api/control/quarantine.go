package control

import (
	"encoding/json"
	"time"

	"millrace/billing/report"
	"millrace/internal/ids"
)

// Quarantined is a usage event that could not be booked and was set aside. What of it cannot be read is absent.
type Quarantined struct {
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Reason    string          `json:"reason"`
	OrgID     string          `json:"org_id,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	KeyID     string          `json:"key_id,omitempty"`
	Model     string          `json:"model,omitempty"`
	ModelID   string          `json:"model_id,omitempty"`
	StartedAt *time.Time      `json:"started_at,omitempty"`
	EndedAt   *time.Time      `json:"ended_at,omitempty"`
	Event     json.RawMessage `json:"event,omitempty"`
	Decision  *Decision       `json:"decision,omitempty"`
}

// Decision is what was decided about an event in quarantine.
type Decision struct {
	Decision string    `json:"decision"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason,omitempty"`
}

func quarantinedOf(x report.Quarantined) Quarantined {
	e := x.Event
	out := Quarantined{ID: ids.Format(ids.Aside, x.ID), At: x.At, Reason: x.Reason, OrgID: format(ids.Org, x.Org), RequestID: format(ids.Request, e.ID),
		KeyID: format(ids.Key, e.Key), Model: x.Model, ModelID: format(ids.Model, e.Model)}
	if e.ID != ids.Nil && json.Valid(x.Logged) {
		started, ended := milli(e.StartedMS), milli(e.EndedMS)
		out.StartedAt, out.EndedAt, out.Event = &started, &ended, x.Logged
	}
	if d := x.Decided; d != nil {
		out.Decision = &Decision{Decision: d.Decision, By: d.By, At: d.At, Reason: d.Why}
	}
	return out
}

func (a *api) listQuarantine(c *call, q PageQuery) (Page[Quarantined], error) {
	before, limit, err := q.bounds(ids.Aside)
	if err != nil {
		return Page[Quarantined]{}, err
	}
	rows, err := a.Books.Quarantine(c, c.actor, before, limit)
	return pageOf(rows, limit, quarantinedOf, func(x report.Quarantined) string { return ids.Format(ids.Aside, x.ID) }), err
}

func (a *api) getQuarantined(c *call, _ none) (Quarantined, error) {
	id, err := c.id("event", ids.Aside)
	if err != nil {
		return Quarantined{}, err
	}
	x, err := a.Books.Quarantined(c, c.actor, id)
	return quarantinedOf(x), err
}

func (a *api) redrive(c *call) (Quarantined, error) {
	id, err := c.id("event", ids.Aside)
	if err != nil {
		return Quarantined{}, err
	}
	if err := a.Books.Redrive(c, c.actor, id); err != nil {
		return Quarantined{}, err
	}
	return a.getQuarantined(c, none{})
}

// Dismissal decides that an event is never charged.
type Dismissal struct {
	Reason string `json:"reason"`
}

func (a *api) dismiss(c *call, in Dismissal) (Quarantined, error) {
	id, err := c.id("event", ids.Aside)
	if err != nil {
		return Quarantined{}, err
	}
	if err := a.Books.Dismiss(c, c.actor, id, in.Reason); err != nil {
		return Quarantined{}, err
	}
	return a.getQuarantined(c, none{})
}
