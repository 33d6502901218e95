package assembly

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/internal/seal"
	"millrace/serving/catalogue"
	"millrace/tenants"
)

// startRoles runs a server of some roles until the test ends.
func startRoles(t *testing.T, roles Roles, b *bus.Bus) *Server {
	t.Helper()
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	ca, _, err := pki.NewCA(clock.System)
	if err != nil {
		t.Fatal(err)
	}
	public, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Config{Roles: roles, DB: dbtest.New(t), Bus: b, Facts: b, Master: master, CA: ca, Public: public,
		PublicURL: "http://" + public.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A process with the control API alone knows how units are from what other processes' hubs tell, and lets hosts join.
func TestControlAloneKnowsHowUnitsAre(t *testing.T) {
	b := dbtest.Bus(t)
	s := startRoles(t, Roles{Control: true}, b)
	by := tenants.System()
	if _, err := s.Catalogue.CreateModel(t.Context(), catalogue.ModelInput{Name: "acme/m", Context: 1000}, by); err != nil {
		t.Fatal(err)
	}
	unit, err := s.Catalogue.Attach(t.Context(), catalogue.AttachInput{Name: "u", URL: "http://127.0.0.1:9", Engine: "vllm", PublicModel: "acme/m", UpstreamModel: "m"}, by)
	if err != nil {
		t.Fatal(err)
	}
	bearer, err := s.Tenants.CreateControlToken(t.Context(), by, "test")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string, into any) int {
		t.Helper()
		return call(t, s.PublicURL()+"/api/v1"+path, method, bearer, body, into)
	}
	fact, err := json.Marshal(wire.Fact{Load: &wire.Load{Unit: unit, Engine: ids.New(), State: wire.StateReady, Running: 7}})
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Data []struct {
			State   string
			Running int
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err := b.Publish(bus.FleetLoad, fact); err != nil { // as the hub of another process does
			t.Fatal(err)
		}
		if status := ask(http.MethodGet, "/units", "", &list); status != http.StatusOK || len(list.Data) != 1 {
			t.Fatalf("%d %+v", status, list)
		}
		if list.Data[0].State == wire.StateReady && list.Data[0].Running == 7 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the unit is said to be %+v", list.Data[0])
		}
	}
	var token struct{ Token string }
	if status := ask(http.MethodPost, "/hosts/join-tokens", `{"name":"h1"}`, &token); status != http.StatusCreated || token.Token == "" {
		t.Errorf("a join token: %d", status)
	}
}
