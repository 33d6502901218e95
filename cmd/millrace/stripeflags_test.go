package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPaymentsNeedAKeyAndASecret(t *testing.T) {
	const key, secret = "sk_test_0123456789abcdef", "whsec_0123456789abcdef"
	for name, f := range map[string]stripeFlags{"nothing": {}, "no secret": {StripeKey: key}, "no key": {StripeWebhookSecret: secret}, "blank secret": {StripeKey: key, StripeWebhookSecret: " \n"}} {
		if p, err := f.payments(); p != nil || err != nil {
			t.Errorf("%s: %v, %v: payments must be off", name, p, err)
		}
	}
	for name, f := range map[string]stripeFlags{
		"a publishable key": {StripeKey: "pk_test_0123456789abcdef", StripeWebhookSecret: secret}, "a short secret": {StripeKey: key, StripeWebhookSecret: "whsec_"},
		"a missing file": {StripeKeyFile: filepath.Join(t.TempDir(), "none"), StripeWebhookSecret: secret},
	} {
		if _, err := f.payments(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte(secret+"\nwhsec_fedcba9876543210\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := stripeFlags{StripeKey: key, StripeWebhookSecretFile: file}.payments()
	if err != nil || p == nil || len(p.Stripe.Webhooks) != 2 {
		t.Fatalf("%v, %v", p, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", p.Stripe, p.Stripe, p.Stripe); strings.Contains(text, "0123456789") {
		t.Errorf("secrets are printed: %s", text)
	}
}
