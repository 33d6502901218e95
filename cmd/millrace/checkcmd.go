package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"millrace/api/hooks"
	"millrace/billing/invoice"
	"millrace/billing/stripegw"
	"millrace/billing/topup"
	"millrace/internal/clock"
)

// checkCmd looks whether what an installation needs outside of it is as it must be.
type checkCmd struct {
	Stripe checkStripeCmd `cmd:"" help:"Whose account the key is, whether its events reach this installation, and what is missing; exit code 1 when something is wrong."`
}

type checkStripeCmd struct {
	stripeFlags
	PublicURL string `help:"Address of this installation, as Stripe reaches it." placeholder:"https://…" env:"MILLRACE_PUBLIC_URL"`
	NoReach   bool   `help:"Do not send test events to that address: this machine cannot reach it."`
	StripeURL string `help:"Of Stripe's API, for tests." hidden:""`

	out io.Writer // nil = standard output
}

var errNoStripe = errors.New("no Stripe key and webhook secret are set: payments by card are off")

// Run prints a line for each check.
func (c *checkStripeCmd) Run(ctx context.Context) error {
	p, err := c.payments()
	switch {
	case err != nil:
		return err
	case p == nil:
		return errNoStripe
	}
	p.Stripe.URL = c.StripeURL
	g, err := stripegw.New(p.Stripe)
	if err != nil {
		return err
	}
	in := stripegw.CheckInput{Events: stripeEvents(), Reach: !c.NoReach, Now: clock.System.Now()}
	if c.PublicURL != "" {
		in.Endpoint = strings.TrimSuffix(c.PublicURL, "/") + hooks.StripePath
	}
	out, wrong := c.out, false
	if out == nil {
		out = os.Stdout
	}
	for _, f := range g.Check(ctx, in) {
		wrong = wrong || f.Verdict == stripegw.Bad
		if _, err := fmt.Fprintf(out, "%-6s %-12s %s\n", f.Verdict, f.What, f.Text); err != nil {
			return err
		}
	}
	if wrong {
		return exitCode(1)
	}
	return nil
}

// stripeEvents are the types that Stripe must be asked to send.
func stripeEvents() []string {
	all := append(topup.EventTypes(), invoice.EventTypes()...)
	slices.Sort(all)
	return slices.Compact(all)
}
