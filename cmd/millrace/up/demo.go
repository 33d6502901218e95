package up

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"millrace/billing/credit"
	"millrace/billing/price"
	"millrace/cmd/millrace/assembly"
	"millrace/internal/datafolder"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/tenants"
	"millrace/tenants/keys"
)

// People and organization of the demo.
const (
	operatorEmail = "operator@demo.example"
	customerEmail = "customer@demo.example"
	demoOrgName   = "Demo customer"
	demoOrgKey    = "up-demo-org"
	demoCredit    = 1_000_000 * money.NanoPerUSD
	demoToken     = "millrace up"
)

// demoPrices are plainly a demo's: 0.15, 0.015 and 0.60 USD per million input, cached and output tokens.
var demoPrices = usage.Prices{usage.Input: 150_000, usage.Cached: 15_000, usage.CacheWrite: 150_000, usage.Output: 600_000,
	usage.Reasoning: 600_000, usage.Image: 150_000, usage.Audio: 150_000}

const demoFile = "demo.json"

// demo is what the data folder remembers of the demo customer. The file holds secrets: mode 0600.
type demo struct {
	Org        ids.ID `json:"org"`
	APIKey     string `json:"api_key"`
	AdminToken string `json:"admin_token"`
	fresh      bool   // made in this start
}

// ensureDemo makes the demo customer, or finds it. It may be interrupted anywhere: the next start goes on.
func ensureDemo(ctx context.Context, folder *datafolder.Folder, s *assembly.Server) (d demo, err error) {
	by := tenants.System()
	b, err := os.ReadFile(folder.Path(demoFile))
	if err == nil {
		if err := s.Tenants.AdoptControlToken(ctx, by, demoToken, operatorEmail); err != nil { // of a folder from before tokens had people
			return d, err
		}
		return d, json.Unmarshal(b, &d)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return d, err
	}
	d.fresh = true
	who, err := s.Tenants.EnsureOperator(ctx, by, operatorEmail)
	if err != nil {
		return d, err
	}
	org, err := s.Tenants.CreateOrg(ctx, by, tenants.NewOrg{Name: demoOrgName, Owner: customerEmail, IdempotencyKey: demoOrgKey})
	if err != nil {
		return d, err
	}
	d.Org = org.ID
	if _, _, err := s.Credit.Grant(ctx, by, credit.GrantInput{Org: org.ID, Kind: credit.Promotional, Amount: demoCredit,
		Reason: "Demo credit", IdempotencyKey: "up-demo-credit"}); err != nil {
		return d, err
	}
	projects, err := s.Tenants.Projects(ctx, by, org.ID)
	if err != nil {
		return d, err
	}
	if _, d.APIKey, err = s.Keys.Create(ctx, by, keys.NewKey{Org: org.ID, Project: projects[0].ID, Name: "Demo key"}); err != nil {
		return d, err
	}
	if err := s.Tenants.RevokeControlToken(ctx, by, demoToken); err != nil && !fault.Is(err, fault.NotFound) {
		return d, err
	}
	operator := tenants.Actor{User: who.ID, Operator: true} // token and sign-in are shown on one terminal: they are one person
	if d.AdminToken, err = s.Tenants.CreateControlToken(ctx, operator, demoToken); err != nil {
		return d, err
	}
	if b, err = json.MarshalIndent(d, "", "  "); err != nil {
		return d, err
	}
	return d, datafolder.WriteFile(folder.Path(demoFile), b, 0o600)
}

// ensureModel makes a model with the demo price, or finds it as it is: prices that were set since stay.
func ensureModel(ctx context.Context, s *assembly.Server, in catalogue.ModelInput) (ids.ID, error) {
	by := tenants.System()
	id := ids.Nil
	m, err := s.Catalogue.CreateModel(ctx, in, by)
	switch {
	case err == nil:
		id = m.ID
	case fault.Is(err, fault.Conflict):
		if err := s.Catalogue.Load(ctx); err != nil {
			return id, err
		}
		known, ok := s.Catalogue.Model(in.Name)
		if !ok {
			return id, err
		}
		id = known.ID
	default:
		return id, err
	}
	versions, err := s.Prices.Timeline(ctx, by, id)
	if err != nil || len(versions) > 0 {
		return id, err
	}
	_, err = s.Prices.Create(ctx, by, price.Draft{Model: id, Prices: price.Every(demoPrices), Note: "Demo price", Confirm: in.Name})
	return id, err
}
