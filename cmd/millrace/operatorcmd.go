package main

import (
	"context"
	"fmt"

	"millrace/internal/clock"
	"millrace/tenants"
	"millrace/web/domain"
)

// operatorCmd lets the first operator of a new installation in, and any other who has lost his way.
type operatorCmd struct {
	databaseFlags
	masterFlags
	Email     string `arg:"" help:"E-mail address of the operator; made when there is none."`
	PublicURL string `help:"Address of the console, as people reach it." placeholder:"https://…" required:"" env:"MILLRACE_PUBLIC_URL"`
}

// Run prints a link that signs in once. Who may run it holds the database and the master key, and so everything.
func (c *operatorCmd) Run(ctx context.Context) error {
	master, err := c.master()
	if err != nil {
		return err
	}
	d, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	people := tenants.New(d, master, clock.System, nobody{}, domain.LinkURL(c.PublicURL))
	if _, err := people.EnsureOperator(ctx, tenants.System(), c.Email); err != nil {
		return err
	}
	link, err := people.CreateLink(ctx, tenants.System(), c.Email, tenants.MaxLinkTTL)
	if err != nil {
		return err
	}
	fmt.Println(link.URL)
	return nil
}

// nobody is told of a new operator: other processes read people when they sign in.
type nobody struct{}

func (nobody) Publish(string, []byte) error { return nil }
