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
	Token     string `help:"Make a control token of this name for the operator, too, and print it on the next line. What it asks for another operator must approve." placeholder:"NAME"`
	PublicURL string `help:"Address of the console, as people reach it." placeholder:"https://…" required:"" env:"MILLRACE_PUBLIC_URL"`
}

// Run prints a link that signs in once, and a control token when one is asked for. Who may run it holds the database and the master key, and so everything.
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
	who, err := people.EnsureOperator(ctx, tenants.System(), c.Email)
	if err != nil {
		return err
	}
	link, err := people.CreateLink(ctx, tenants.System(), c.Email, tenants.MaxLinkTTL)
	if err != nil {
		return err
	}
	bearer := ""
	if c.Token != "" {
		if bearer, err = people.CreateControlToken(ctx, tenants.Actor{User: who.ID, Operator: true}, c.Token); err != nil {
			return err
		}
	}
	fmt.Println(link.URL)
	if bearer != "" {
		fmt.Println(bearer)
	}
	return nil
}

// nobody is told of a new operator: other processes read people when they sign in.
type nobody struct{}

func (nobody) Publish(string, []byte) error { return nil }
