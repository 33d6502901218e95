package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"millrace/billing/rate"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/pg"
)

// RaterCmd measures how fast usage events become ledger entries, with a PostgreSQL and a NATS made for it. Beside it, in
// turn: COPY of the same rows by the same server, which is as fast as rows can be written at all.
type RaterCmd struct {
	Events    int    `help:"Events of a round." default:"200000"`
	Customers int    `help:"Customers that the events are of; each has a balance and a capped key." default:"200"`
	Rounds    int    `help:"Rounds; the median counts." default:"3"`
	JSON      bool   `name:"json" help:"Print the report as JSON."`
	Dir       string `help:"Where the temporary data folder is made; a memory file system would flatter." placeholder:"DIR"`
}

// Limits of the flags.
const (
	maxRaterEvents    = 10_000_000
	maxRaterCustomers = 100_000
)

// RaterReport is what one run measured.
type RaterReport struct {
	At        time.Time    `json:"at"`
	Machine   Machine      `json:"machine"`
	Events    int          `json:"events"` // of a round
	Customers int          `json:"customers"`
	Rounds    int          `json:"rounds"`
	Rows      []RaterSpeed `json:"rows"`
}

// RaterSpeed is one way to write the rows of usage events.
type RaterSpeed struct {
	Way       string    `json:"way"`
	PerSecond []float64 `json:"per_second"`      // events, by round
	Process   []float64 `json:"cpu_process_us"`  // CPU an event in this process: the rater and the log
	Database  []float64 `json:"cpu_database_us"` // and in PostgreSQL, all of its processes
}

// Run is the command.
func (c *RaterCmd) Run(ctx context.Context) error {
	report, err := c.Measure(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if c.JSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	return report.Print(os.Stdout)
}

// Measure starts the stores, measures, ends them, and tells of its progress.
func (c *RaterCmd) Measure(ctx context.Context, progress io.Writer) (report *RaterReport, err error) {
	if c.Rounds < 1 || c.Rounds > maxRounds || c.Events < 1 || c.Events > maxRaterEvents || c.Customers < 1 || c.Customers > maxRaterCustomers {
		return nil, fmt.Errorf("want 1 to %d rounds of 1 to %d events of 1 to %d customers", maxRounds, maxRaterEvents, maxRaterCustomers)
	}
	dir, err := tempDir(c.Dir)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	report = &RaterReport{At: time.Now().UTC(), Machine: thisMachine(dir, ""), Events: c.Events, Customers: c.Customers, Rounds: c.Rounds,
		Rows: []RaterSpeed{{Way: "rater"}, {Way: "COPY, the table's indexes"}, {Way: "COPY, no index"}}}
	fmt.Fprintf(progress, "starting PostgreSQL and NATS in %s\n", dir)
	server, err := pg.Start(ctx, pg.Config{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		err = errors.Join(err, server.Stop(stopping))
	}()
	nats, err := bus.StartEmbedded(ctx, bus.EmbeddedConfig{Dir: filepath.Join(dir, "nats"), SyncAlways: true})
	if err != nil {
		return nil, err
	}
	defer nats.Stop()
	connection, err := bus.Connect(ctx, bus.Config{Server: nats, Name: "bench"})
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	d, err := db.Open(ctx, server.URL(), db.Options{})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return nil, err
	}
	for i := range c.Rounds {
		fmt.Fprintf(progress, "round %d of %d: the rater, then COPY of what it wrote\n", i+1, c.Rounds)
		if err := c.round(ctx, report, d, connection, server.URL()); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// round lets the rater book a round's events, then copies as many rows.
func (c *RaterCmd) round(ctx context.Context, report *RaterReport, d *db.DB, connection *bus.Bus, url string) error {
	before := cpuOf(os.Getpid())
	r, err := rate.Bench(ctx, rate.BenchConfig{DB: d, Bus: connection, Events: c.Events, Customers: c.Customers})
	if err != nil {
		return err
	}
	// PostgreSQL's share is taken from this process's own server, the seeding of customers included.
	spent := cpuOf(os.Getpid()).sub(before)
	report.Rows[0].add(c.Events, r.Wall, r.Process, spent.Database)
	rows, err := exportRows(ctx, d, c.Events)
	if err != nil {
		return err
	}
	for i, indexes := range []bool{true, false} {
		took, spent, err := copyRows(ctx, url, rows, c.Events, indexes)
		if err != nil {
			return err
		}
		report.Rows[1+i].add(c.Events, took, spent.Client, spent.Database)
	}
	return nil
}

func (s *RaterSpeed) add(events int, wall, process, database time.Duration) {
	s.PerSecond = append(s.PerSecond, float64(events)/wall.Seconds())
	s.Process = append(s.Process, micros(process)/float64(events))
	s.Database = append(s.Database, micros(database)/float64(events))
}

// Print writes the report for people.
func (r *RaterReport) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, r.Machine.line(r.At))
	fmt.Fprintf(t, "%d events of %d customers a round, median of %d rounds\n\n", r.Events, r.Customers, r.Rounds)
	fmt.Fprintln(t, "\tevents/s\tCPU us an event\tin the process\tin PostgreSQL\t")
	for _, s := range r.Rows {
		process, database := median(s.Process), median(s.Database)
		fmt.Fprintf(t, "%s\t%.0f\t%.1f\t%.1f\t%.1f\t\n", s.Way, median(s.PerSecond), process+database, process, database)
	}
	return t.Flush()
}
