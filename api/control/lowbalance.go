package control

import (
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// LowBalance is below which balance an organization's people and webhooks are told.
type LowBalance struct {
	Below Amount     `json:"below"`           // 0: nobody is told
	Since *time.Time `json:"since,omitempty"` // they were told that it is below
}

// NewLowBalance names the threshold.
type NewLowBalance struct {
	BelowUSD string `json:"below_usd"`
}

// knownOrg is the path's organization, which there is.
func (a *api) knownOrg(c *call) (ids.ID, error) {
	org, err := c.org()
	if err != nil {
		return org, err
	}
	_, err = a.Tenants.Org(c, c.actor, org)
	return org, err
}

func (a *api) lowBalance(c *call, org ids.ID) (LowBalance, error) {
	l, err := a.Alerts.Low(c, c.actor, org)
	return LowBalance{Below: amount(l.Below), Since: optionalTime(l.Since)}, err
}

func (a *api) getLowBalance(c *call, _ none) (LowBalance, error) {
	org, err := a.knownOrg(c)
	if err != nil {
		return LowBalance{}, err
	}
	return a.lowBalance(c, org)
}

func (a *api) setLowBalance(c *call, in NewLowBalance) (LowBalance, error) {
	org, err := a.knownOrg(c)
	if err != nil {
		return LowBalance{}, err
	}
	below, err := parseUSD("below_usd", in.BelowUSD)
	if err != nil {
		return LowBalance{}, err
	}
	if err := a.Alerts.SetLow(c, c.actor, org, below); err != nil {
		if f := *fault.Of(err); f.Param == "below" {
			f.Param = "below_usd"
			err = &f
		}
		return LowBalance{}, err
	}
	return a.lowBalance(c, org)
}
