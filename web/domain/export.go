package domain

import (
	"context"
	"io"
	"strings"

	"millrace/billing/export"
	"millrace/internal/ids"
	"millrace/tenants"
	pages "millrace/web/report"
	"millrace/web/session"
)

// Export is the organization's.
func (c customer) Export(ctx context.Context, who session.Viewer, in pages.Export) (pages.File, error) {
	return c.export(ctx, member(who), who.Org, in)
}

// Export is over all customers.
func (b business) Export(ctx context.Context, in pages.Export) (pages.File, error) {
	return b.export(ctx, operator(ctx), ids.Nil, in)
}

func (d *Deps) export(ctx context.Context, by tenants.Actor, org ids.ID, in pages.Export) (f pages.File, err error) {
	format, err := export.ParseFormat(in.Format)
	if err != nil {
		return f, err
	}
	q := export.Query{Kind: export.Kind(in.Kind), Org: org, From: in.From, To: in.To}
	if err := d.Exports.Check(by, q); err != nil {
		return f, err
	}
	f.Name = strings.TrimSuffix(q.FileName(format), "."+string(format)) + ".zip"
	f.Write = func(w io.Writer) error { return d.Exports.Zip(ctx, by, q, format, w) }
	return f, nil
}
