package domain_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/web/admin"
	"millrace/web/console"
	"millrace/web/pricelist"
	"millrace/web/ui"
)

// A price with terms goes from the form to everyone's pages; the page shows what the newest traffic would have cost.
func TestPricesWithTerms(t *testing.T) {
	s := newShop(t)
	path := "/admin/models/" + ids.Format(ids.Model, s.small.ID)
	form := url.Values{"input": {"0.55"}, "cached": {"0.05"}, "output": {"1.1"}, "tier1_above": {"32000"}, "tier1_input": {"0.80"}, "window1_days": {"sat sun"},
		"window1_from": {"00:00"}, "window1_to": {"24:00"}, "window1_percent": {"80"}, "priority_percent": {"140"}, "step": {"preview"}}
	status, body, _ := s.page(s.staff, path+"/price", form)
	if status != http.StatusOK || !strings.Contains(body, "The last 30 days at this price") || !strings.Contains(body, "prompts above 32,000 tokens") {
		t.Fatalf("the preview: %d", status)
	}
	form.Set("step", "publish")
	form.Set("confirm", s.small.Name)
	if status, body, _ := s.page(s.staff, path+"/price", form); status != http.StatusSeeOther {
		t.Fatalf("published: %d %s", status, body)
	}
	list, err := s.site.Prices.PublicPrices(t.Context())
	s.must(err)
	i := slices.IndexFunc(list, func(m pricelist.Model) bool { return m.Name == s.small.Name })
	if i < 0 {
		t.Fatalf("%s is not on the public page: %+v", s.small.Name, list)
	}
	steps := list[i].Terms.Steps
	if len(steps) != 1 || steps[0].Above != 32_000 || steps[0].Prices[usage.Input] != 800_000 || steps[0].Prices[usage.Output] != 1_100_000 || len(list[i].Terms.Windows) != 1 {
		t.Errorf("the public page has %+v", list[i].Terms)
	}
	models, err := s.site.Customer.Models(s.as(s.owner), s.viewer(s.owner))
	if err != nil || !slices.ContainsFunc(models, func(m console.Model) bool { return m.Name == s.small.Name && len(m.Terms.Steps) == 1 }) {
		t.Errorf("the customer sees %+v, %v", models, err)
	}
	overlapping := admin.NewPrice{Model: s.small.ID, Prices: list[i].Prices, Confirm: s.small.Name, Terms: ui.PriceTerms{Windows: []ui.PriceWindow{
		{From: "01:00", To: "03:00", Percent: 90}, {Days: []string{"mon"}, From: "02:00", To: "04:00", Percent: 90}}}}
	if _, err := s.site.Business.PreviewPrice(s.as(s.staff), overlapping); fault.Of(err).Param != "windows" {
		t.Errorf("windows that overlap: %v", err)
	}
}
