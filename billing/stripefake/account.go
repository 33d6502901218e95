package stripefake

import (
	"slices"
)

// webhookEndpoint is where events are to be sent, as it was set up.
type webhookEndpoint struct {
	ID       string   `json:"id"`
	Object   string   `json:"object"`
	URL      string   `json:"url"`
	Version  string   `json:"api_version"`
	Events   []string `json:"enabled_events"`
	Status   string   `json:"status"`
	Created  int64    `json:"created"`
	Livemode bool     `json:"livemode"`
}

// accountName is of the one account that there is.
const accountName = "Millrace test payments"

func (s *Server) getAccount(*call) *reply {
	return ok(map[string]any{"id": "acct_test_millrace", "object": "account", "country": "US", "default_currency": "usd", "charges_enabled": true, "payouts_enabled": true, "details_submitted": true,
		"business_profile": map[string]any{"name": accountName}, "settings": map[string]any{"dashboard": map[string]any{"display_name": accountName}}})
}

func (s *Server) listEndpoints(c *call) *reply {
	return page(c, s.mem.Hooks, func(x *webhookEndpoint) string { return x.ID }, func(x *webhookEndpoint) int64 { return x.Created }, nil, func(x *webhookEndpoint) any { return x })
}

// Endpoint is set up as somebody would in the payment provider's own pages, in place of any other for the same address.
// version "" = the fake's own.
func (s *Server) Endpoint(url, version string, events []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version == "" {
		version = APIVersion
	}
	s.mem.Hooks = slices.DeleteFunc(s.mem.Hooks, func(x *webhookEndpoint) bool { return x.URL == url })
	s.mem.Hooks = append(s.mem.Hooks, &webhookEndpoint{ID: newID("we"), Object: "webhook_endpoint", URL: url, Version: version, Events: events, Status: "enabled", Created: unix(s.now())})
	s.save()
}

// NoEndpoint removes an endpoint.
func (s *Server) NoEndpoint(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mem.Hooks = slices.DeleteFunc(s.mem.Hooks, func(x *webhookEndpoint) bool { return x.URL == url })
	s.save()
}
