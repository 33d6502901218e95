package trial

import (
	"context"

	"millrace/billing/credit"
	"millrace/billing/price"
	"millrace/cmd/millrace/assembly"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/tenants"
	"millrace/tenants/keys"
)

// Shop is one customer and one model for sale.
type Shop struct {
	Org, Project, Key, Model ids.ID
	APIKey                   string
	ModelName                string
}

// ShopOwner is the customer's person.
const ShopOwner = "trial@demo.example"

// What a shop sells, and how much of it one can buy.
const (
	shopModel   = "trial/sim"
	shopContext = 1 << 20
	shopCredit  = 1_000_000 * money.NanoPerUSD
)

// shopPrices are round, so that a reader can check a bill in his head: 1, 0.1 and 2 USD per million tokens.
var shopPrices = usage.Prices{usage.Input: 1_000_000, usage.Cached: 100_000, usage.CacheWrite: 1_000_000, usage.Output: 2_000_000,
	usage.Reasoning: 2_000_000, usage.Image: 1_000_000, usage.Audio: 1_000_000}

func openShop(ctx context.Context, s *assembly.Server) (shop Shop, err error) {
	by := tenants.System()
	shop.ModelName = shopModel
	m, err := s.Catalogue.CreateModel(ctx, catalogue.ModelInput{Name: shopModel, Context: shopContext, MaxOutput: shopContext / 4}, by)
	if err != nil {
		return shop, err
	}
	shop.Model = m.ID
	if err := Reprice(ctx, s, shop, shopPrices); err != nil {
		return shop, err
	}
	org, err := s.Tenants.CreateOrg(ctx, by, tenants.NewOrg{Name: "Trial", Owner: ShopOwner})
	if err != nil {
		return shop, err
	}
	shop.Org = org.ID
	if _, _, err := s.Credit.Grant(ctx, by, credit.GrantInput{Org: org.ID, Kind: credit.Promotional, Amount: shopCredit, Reason: "A trial", IdempotencyKey: "trial"}); err != nil {
		return shop, err
	}
	projects, err := s.Tenants.Projects(ctx, by, org.ID)
	if err != nil {
		return shop, err
	}
	shop.Project = projects[0].ID
	key, secret, err := s.Keys.Create(ctx, by, keys.NewKey{Org: org.ID, Project: shop.Project, Name: "Trial"})
	shop.Key, shop.APIKey = key.ID, secret
	return shop, err
}

// Reprice gives the shop's model other prices from now on.
func Reprice(ctx context.Context, s *assembly.Server, shop Shop, p usage.Prices) error {
	_, err := s.Prices.Create(ctx, tenants.System(), price.Draft{Model: shop.Model, Prices: price.Every(p), Note: "A trial", Confirm: shop.ModelName})
	return err
}
