package up

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"millrace/api/hooks"
	"millrace/billing/stripefake"
	"millrace/billing/stripegw"
	"millrace/cmd/millrace/assembly"
	"millrace/internal/clock"
	"millrace/internal/datafolder"
)

// paymentsFile is the memory of the payment provider that is not real.
const paymentsFile = "test-payments.json"

const apiHeaderTimeout = 10 * time.Second

// startPayments runs a payment provider that is not real: people try payments, and no money moves. Its API listens on
// loopback; its pages are on the public address, so that one address is enough to reach everything.
func (u *instance) startPayments(public net.Listener) (*assembly.Payments, error) {
	saved, err := os.ReadFile(u.folder.Path(paymentsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// Known to this process alone: nobody else calls the API or signs events.
	key, secret := "sk_test_"+rand.Text(), "whsec_"+rand.Text()
	pages := "http://" + reachable(public) + assembly.TestPagesPath
	u.payments, err = stripefake.New(stripefake.Config{Clock: clock.System, Key: key, Secret: secret, PageURL: pages, Saved: saved,
		Save: func(data []byte) error { return datafolder.WriteFile(u.folder.Path(paymentsFile), data, 0o600) }})
	if err != nil {
		return nil, fmt.Errorf("%s, what the test payments remember: %w; remove it to begin anew (credit stays)", u.folder.Path(paymentsFile), err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	api := &http.Server{Handler: u.payments.API(), ReadHeaderTimeout: apiHeaderTimeout}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := api.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("the test payments' API ended", "error", err)
		}
	}()
	u.onEnd(func() error {
		defer func() { <-ended }()
		return api.Close()
	})
	return &assembly.Payments{TestPages: u.payments.Pages(),
		Stripe: stripegw.Config{Key: stripegw.Secret(key), Webhooks: []stripegw.Secret{stripegw.Secret(secret)}, URL: "http://" + l.Addr().String()}}, nil
}

// deliverEvents tells the server what happens at the payment provider, until the end.
func (u *instance) deliverEvents(public net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = u.payments.Deliver(ctx, "http://"+reachable(public)+hooks.StripePath) // it ends with ctx alone
	}()
	u.onEnd(func() error {
		cancel()
		<-ended
		return nil
	})
}
