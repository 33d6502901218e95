package keys_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"millrace/db/dbtest"
	"millrace/tenants/keys"
)

const patience = 10 * time.Second // of a poll that is expected to succeed at once

// The gateways' clock stands still and they do not refresh, so only a notice can tell them. Two of them, as in production.
func TestNoticesReachEveryGateway(t *testing.T) {
	b := dbtest.Bus(t)
	f := setup(t, b)
	ctx := t.Context()
	var gateways []*keys.Authenticator
	for range 2 {
		a := f.gateway((*keys.Authenticator).WithoutRefresh)
		stop, err := a.Follow(b)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		gateways = append(gateways, a)
	}
	k, text := f.key(keys.NewKey{})
	everywhere := func(want string) {
		t.Helper()
		for i, a := range gateways {
			deadline := time.Now().Add(patience)
			for {
				_, err := a.Authenticate(ctx, text)
				if code(err) == want {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("gateway %d: got %v, want %s", i, err, want)
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	everywhere("ok")
	if _, err := f.tenants.SuspendOrg(ctx, f.root, f.org.ID); err != nil {
		t.Fatal(err)
	}
	everywhere("organization_suspended")
	if _, err := f.tenants.RestoreOrg(ctx, f.root, f.org.ID); err != nil {
		t.Fatal(err)
	}
	everywhere("ok")
	if _, err := f.keys.Revoke(ctx, f.root, f.org.ID, k.ID); err != nil {
		t.Fatal(err)
	}
	everywhere("api_key_revoked")
}

// slowSource reads from PostgreSQL and then waits: a revocation can commit, and its notice arrive, in between.
type slowSource struct {
	keys.Source
	once    sync.Once
	read    chan struct{} // closed when the first lookup has its records
	proceed chan struct{}
}

func (s *slowSource) Lookup(ctx context.Context, hashes []keys.Hash) ([]keys.Record, error) {
	records, err := s.Source.Lookup(ctx, hashes)
	s.once.Do(func() { close(s.read); <-s.proceed })
	return records, err
}

func TestARevocationDuringALoadWins(t *testing.T) {
	b := dbtest.Bus(t)
	f := setup(t, b)
	src := &slowSource{Source: keys.NewStore(f.db), read: make(chan struct{}), proceed: make(chan struct{})}
	a := keys.NewAuthenticator(src, f.master, f.clock, func() bool { return true })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = a.Run(ctx) })
	k, text := f.key(keys.NewKey{})

	arrived := make(chan struct{})
	var once sync.Once
	stop, err := b.Subscribe("notice.key", func(_ string, data []byte) {
		a.Invalidate(data)
		once.Do(func() { close(arrived) })
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()

	verdict := make(chan error, 1)
	wg.Go(func() { _, err := a.Authenticate(ctx, text); verdict <- err })
	<-src.read // in order, says the database to this query
	if _, err := f.keys.Revoke(ctx, f.root, f.org.ID, k.ID); err != nil {
		t.Fatal(err)
	}
	<-arrived
	close(src.proceed)
	if err := <-verdict; code(err) != "api_key_revoked" {
		t.Fatalf("got %v", err)
	}
}
