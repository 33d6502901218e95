package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"millrace/billing/stripegw"
	"millrace/cmd/millrace/assembly"
)

// stripeFlags are how `serve` reaches the payment provider. Without a key and a webhook secret customers cannot pay by card,
// and every page says so.
type stripeFlags struct {
	StripeKey               string `help:"Stripe's secret or restricted key." env:"MILLRACE_STRIPE_KEY" hidden:""`
	StripeKeyFile           string `help:"File with Stripe's secret or restricted key; with it and a webhook secret customers pay by card." type:"path" env:"MILLRACE_STRIPE_KEY_FILE"`
	StripeWebhookSecret     string `help:"Secrets that sign Stripe's events, one a line." env:"MILLRACE_STRIPE_WEBHOOK_SECRET" hidden:""`
	StripeWebhookSecretFile string `help:"File with the secret that signs Stripe's events; while it is changed, a second line holds the one before." type:"path" env:"MILLRACE_STRIPE_WEBHOOK_SECRET_FILE"`
}

// payments gives nil when payments by card are off.
func (f stripeFlags) payments() (*assembly.Payments, error) {
	key, err := secretText("Stripe's key", f.StripeKey, f.StripeKeyFile)
	if err != nil {
		return nil, err
	}
	signing, err := secretText("Stripe's webhook secret", f.StripeWebhookSecret, f.StripeWebhookSecretFile)
	if err != nil {
		return nil, err
	}
	switch {
	case key == "" && signing == "":
		slog.Info("customers cannot pay by card: no Stripe key is set")
		return nil, nil
	case key == "" || signing == "":
		slog.Warn("customers cannot pay by card: Stripe needs both a key and a webhook secret")
		return nil, nil
	}
	p := &assembly.Payments{Stripe: stripegw.Config{Key: stripegw.Secret(key)}}
	for _, s := range strings.Fields(signing) {
		p.Stripe.Webhooks = append(p.Stripe.Webhooks, stripegw.Secret(s))
	}
	if _, err := stripegw.New(p.Stripe); err != nil { // before anything is started
		return nil, err
	}
	return p, nil
}

// secretText is a secret from a variable or a file, without blanks around it.
func secretText(what, text, file string) (string, error) {
	if text == "" && file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		text = string(b)
	}
	return strings.TrimSpace(text), nil
}
