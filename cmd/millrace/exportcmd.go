package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"millrace/billing/export"
	"millrace/cmd/millrace/up"
	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// exportCmd writes usage, revenue or months into a folder. Who may run it holds the database, and so everything.
type exportCmd struct {
	Kind   string `arg:"" enum:"usage,costs,revenue,months" help:"usage: a row per request; costs: FOCUS-style rows per day; revenue: the operator's sums per day; months: accounting months by customer."`
	Out    string `arg:"" help:"Folder for the files and their manifest. One that an export was broken off in is gone on with." type:"path"`
	Format string `help:"csv, jsonl or parquet." enum:"csv,jsonl,parquet" default:"csv"`
	Org    string `help:"Of this organization (org_…); default: all."`
	From   string `help:"First moment: a UTC day (2026-11-01) or RFC 3339." required:""`
	To     string `help:"The moment after the last; default: now, which a resumed export must name."`
	Part   int64  `help:"Rows of a file, at least." default:"1000000"`
	databaseFlags
	Data string `help:"Data folder of up, running or stopped; default: the one that up uses, unless there is a DATABASE_URL." placeholder:"DIR" env:"MILLRACE_DATA"`
}

func (c *exportCmd) Run(ctx context.Context) error {
	in, err := c.query()
	if err != nil {
		return err
	}
	d, closeAll, err := c.connect(ctx)
	if err != nil {
		return err
	}
	bar := newBar(in)
	m, err := export.New(d, clock.System).Folder(ctx, tenants.System(), in, export.Format(c.Format), c.Out, c.Part, bar.tell)
	bar.end()
	if err := errors.Join(err, closeAll()); err != nil {
		if ctx.Err() != nil || fault.Of(err).Kind == fault.Internal { // broken off, not refused
			err = fmt.Errorf("%w (the same command with --to %s goes on behind the last complete file)", err, in.To.Format(time.RFC3339))
		}
		return err
	}
	fmt.Printf("%d rows in %d files, described by %s/%s\n", m.Total.Rows, len(m.Parts), c.Out, export.ManifestFile)
	return nil
}

func (c *exportCmd) query() (in export.Query, err error) {
	in = export.Query{Kind: export.Kind(c.Kind), To: clock.System.Now().UTC().Truncate(time.Minute)}
	if in.From, err = moment(c.From); err != nil {
		return in, err
	}
	if c.To != "" {
		if in.To, err = moment(c.To); err != nil {
			return in, err
		}
	}
	if c.Org != "" {
		in.Org, err = ids.Parse(ids.Org, c.Org)
	}
	return in, err
}

func moment(s string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%q is neither a day (2026-11-01) nor a moment (2026-11-01T12:00:00Z)", s)
	}
	return t.UTC(), nil
}

func (c *exportCmd) connect(ctx context.Context) (*db.DB, func() error, error) {
	if c.DatabaseURL == "" || c.Data != "" {
		stores, err := up.OpenStores(ctx, c.Data)
		if err != nil {
			return nil, nil, err
		}
		return stores.DB, stores.Close, nil
	}
	d, err := c.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	return d, func() error { d.Close(); return nil }, nil
}

// bar shows on a terminal how far an export is; elsewhere it is silent.
type bar struct {
	from, to time.Time
	last     time.Time // when it was drawn
	shown    bool
	terminal bool
}

const barEvery = 200 * time.Millisecond

func newBar(in export.Query) *bar {
	info, err := os.Stderr.Stat()
	return &bar{from: in.From, to: in.To, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (b *bar) tell(p export.Progress) {
	if !b.terminal || time.Since(b.last) < barEvery {
		return
	}
	b.last, b.shown = time.Now(), true
	const width = 30
	done := min(width, max(0, int(width*p.At.Sub(b.from)/max(1, b.to.Sub(b.from)))))
	fmt.Fprintf(os.Stderr, "\r[%s%s] %s  %d rows ", strings.Repeat("#", done), strings.Repeat(".", width-done), p.At.Format(time.DateOnly), p.Rows)
}

func (b *bar) end() {
	if b.shown {
		fmt.Fprintln(os.Stderr)
	}
}
