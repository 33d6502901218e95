package control

import (
	"time"

	"millrace/billing/alert"
	"millrace/billing/hook"
	"millrace/internal/ids"
)

// Alert is a threshold of a cap that was passed.
type Alert struct {
	Scope       string     `json:"scope"`
	ScopeID     string     `json:"scope_id"`
	Period      string     `json:"period"`
	PeriodStart time.Time  `json:"period_start"`
	Percent     int        `json:"percent"`
	Cap         Amount     `json:"cap"`
	Spent       Amount     `json:"spent"`
	AlertOnly   bool       `json:"alert_only"`
	At          time.Time  `json:"at"`
	ToldAt      *time.Time `json:"told_at,omitempty"`
}

func alertOf(x alert.Alert) Alert {
	return Alert{Scope: string(x.Scope), ScopeID: ids.Format(scopes[x.Scope], x.ScopeID), Period: string(x.Period), PeriodStart: x.PeriodStart, Percent: x.Percent,
		Cap: amount(x.Cap), Spent: amount(x.Spent), AlertOnly: !x.Hard, At: x.At, ToldAt: x.ToldAt}
}

func (a *api) listAlerts(c *call, _ none) (Page[Alert], error) {
	org, err := c.org()
	if err != nil {
		return Page[Alert]{}, err
	}
	list, err := a.Alerts.Alerts(c, c.actor, org)
	return all(list, alertOf), err
}

// Webhook is an address that events are sent to.
type Webhook struct {
	ID        string    `json:"id"`
	URL       string    `json:"url"`
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
	Waiting   int64     `json:"waiting"`
	Failed    int64     `json:"failed"`
	Problem   string    `json:"problem,omitempty"` // why nothing is delivered there
}

func webhookOf(h hook.Hook) Webhook {
	return Webhook{ID: ids.Format(hook.Prefix, h.ID), URL: h.URL, CreatedBy: h.CreatedBy, CreatedAt: h.CreatedAt, Waiting: h.Waiting, Failed: h.Failed, Problem: h.Problem}
}

func (a *api) listWebhooks(c *call, _ none) (Page[Webhook], error) {
	org, err := c.org()
	if err != nil {
		return Page[Webhook]{}, err
	}
	list, err := a.Hooks.Hooks(c, c.actor, org)
	return all(list, webhookOf), err
}

// NewWebhook adds a webhook.
type NewWebhook struct {
	URL string `json:"url"`
}

// CreatedWebhook has the secret, for the only time.
type CreatedWebhook struct {
	Webhook Webhook `json:"webhook"`
	Secret  string  `json:"secret"`
}

func (a *api) createWebhook(c *call, in NewWebhook) (CreatedWebhook, error) {
	org, err := c.org()
	if err != nil {
		return CreatedWebhook{}, err
	}
	made, secret, err := a.Hooks.Add(c, c.actor, org, in.URL)
	return CreatedWebhook{Webhook: webhookOf(made), Secret: secret}, err
}

func (a *api) testWebhook(c *call) (none, error) {
	org, err := c.org()
	if err != nil {
		return none{}, err
	}
	id, err := c.id("webhook", hook.Prefix)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Hooks.Test(c, c.actor, org, id)
}

func (a *api) removeWebhook(c *call) (none, error) {
	org, err := c.org()
	if err != nil {
		return none{}, err
	}
	id, err := c.id("webhook", hook.Prefix)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Hooks.Remove(c, c.actor, org, id)
}

// Delivery is a line of the delivery log.
type Delivery struct {
	WebhookID string    `json:"webhook_id"`
	EventID   string    `json:"event_id"`
	Kind      string    `json:"kind"`
	State     string    `json:"state"`
	Attempts  int       `json:"attempts"`
	Status    int       `json:"status"`
	Problem   string    `json:"problem"`
	CreatedAt time.Time `json:"created_at"`
	NextAt    time.Time `json:"next_at"`
}

func deliveryOf(d hook.Delivery) Delivery {
	return Delivery{WebhookID: ids.Format(hook.Prefix, d.Hook), EventID: ids.Format(hook.EventPrefix, d.Event), Kind: d.Kind, State: d.State, Attempts: d.Attempts,
		Status: d.Status, Problem: d.Problem, CreatedAt: d.At, NextAt: d.NextAt}
}

func (a *api) listDeliveries(c *call, _ none) (Page[Delivery], error) {
	org, err := c.org()
	if err != nil {
		return Page[Delivery]{}, err
	}
	list, err := a.Hooks.Deliveries(c, c.actor, org)
	return all(list, deliveryOf), err
}
