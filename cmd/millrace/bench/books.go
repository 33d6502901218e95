package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"millrace/billing/rate"
	"millrace/cmd/millrace/assembly"
	"millrace/cmd/millrace/trial"
	"millrace/db/pg"
)

// BooksCmd measures what a large book costs: the rater, the console's pages and the first rows of exports, before and after
// many requests were booked. A fifth of all are one customer's, each booked alone, as under a low and steady load; the others'
// are booked four at a time. The pages are that customer's and the operator's.
type BooksCmd struct {
	Requests  int64         `help:"Booked requests." default:"50000000"`
	Days      int           `help:"Days that they are spread over, up to now." default:"30"`
	Customers int           `help:"Customers; a fifth of all requests are of the first." default:"1000"`
	Samples   int           `help:"How often each page is fetched." default:"40"`
	Rated     int           `help:"Events of a round of the rater, before and after." default:"200000"`
	Quiet     time.Duration `help:"Before the pages are measured, wait at most so long until nothing else runs here." placeholder:"DURATION"`
	JSON      bool          `name:"json" help:"Print the report as JSON."`
	Dir       string        `help:"Where the temporary data folder is made: about 1 GB for 1.5 million requests." placeholder:"DIR"`
}

// Limits of the flags.
const (
	maxBooked        = 1_000_000_000
	maxBookDays      = 366
	maxBookCustomers = 100_000
	maxSamples       = 10_000
)

// BooksReport is what one run measured.
type BooksReport struct {
	At        time.Time     `json:"at"`
	Machine   Machine       `json:"machine"`
	Requests  int64         `json:"requests"`
	Days      int           `json:"days"`
	Customers int           `json:"customers"`
	Filled    time.Duration `json:"filled_ns"` // how long it took to make the rows
	Bytes     int64         `json:"database_bytes"`
	Raters    []BooksRater  `json:"raters"`
	Pages     []BooksPage   `json:"pages"`
}

// BooksRater is the rater's speed over a book of some size.
type BooksRater struct {
	Requests  int64   `json:"requests"` // booked before
	PerSecond int64   `json:"per_second"`
	CPU       float64 `json:"cpu_us"` // an event, PostgreSQL included
}

// BooksPage is how long a page took, in milliseconds, to its last byte; of an export, to the first 4 KB of its archive.
type BooksPage struct {
	Who  string  `json:"who"`
	Path string  `json:"path"`
	P50  float64 `json:"p50_ms"`
	P95  float64 `json:"p95_ms"`
	Max  float64 `json:"max_ms"`
}

// Run is the command.
func (c *BooksCmd) Run(ctx context.Context) error {
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

// Measure starts a server, fills its books, measures and ends it.
func (c *BooksCmd) Measure(ctx context.Context, progress io.Writer) (report *BooksReport, err error) {
	if c.Requests < 1 || c.Requests > maxBooked || c.Days < 1 || c.Days > maxBookDays || c.Customers < 2 || c.Customers > maxBookCustomers ||
		c.Samples < 1 || c.Samples > maxSamples || c.Rated < 1 || c.Rated > maxRaterEvents {
		return nil, fmt.Errorf("want at most %d requests on %d days of 2 to %d customers, and 1 to %d samples", maxBooked, maxBookDays, maxBookCustomers, maxSamples)
	}
	dir, err := tempDir(c.Dir)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	report = &BooksReport{At: time.Now().UTC(), Machine: thisMachine(dir, ""), Requests: c.Requests, Days: c.Days, Customers: c.Customers}
	fmt.Fprintf(progress, "starting PostgreSQL, NATS and the console in %s\n", dir)
	k, err := trial.StartCluster(ctx, trial.ClusterConfig{Dir: dir, Roles: assembly.Roles{Control: true},
		InitSQL: []string{"GRANT SET ON PARAMETER session_replication_role TO " + pg.Role}})
	if err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		err = errors.Join(err, k.Stop(stopping))
	}()
	if err := c.rate(ctx, k, report, 0, progress); err != nil {
		return nil, err
	}
	f := filler{url: k.DatabaseURL(), shop: k.Shop, requests: c.Requests, days: c.Days, customers: c.Customers, until: report.At, progress: progress}
	began := time.Now()
	if report.Bytes, err = f.fill(ctx); err != nil {
		return nil, err
	}
	report.Filled = time.Since(began)
	if report.Pages, err = c.pages(ctx, k, f.lastDay(), progress); err != nil {
		return nil, err
	}
	return report, c.rate(ctx, k, report, c.Requests, progress)
}

// rate measures the rater over what is booked so far.
func (c *BooksCmd) rate(ctx context.Context, k *trial.Cluster, report *BooksReport, booked int64, progress io.Writer) error {
	fmt.Fprintf(progress, "the rater, over %d requests\n", booked)
	before := cpuOf(os.Getpid())
	r, err := rate.Bench(ctx, rate.BenchConfig{DB: k.DB, Bus: k.Bus, Events: c.Rated})
	if err != nil {
		return err
	}
	spent := cpuOf(os.Getpid()).sub(before)
	report.Raters = append(report.Raters, BooksRater{Requests: booked, PerSecond: r.PerSecond,
		CPU: float64((r.Process + spent.Database).Nanoseconds()) / 1000 / float64(c.Rated)})
	return nil
}

// quietLoad is the load average of a minute below which nothing else runs.
const (
	quietLoad = 0.7
	quietPoll = 5 * time.Second
)

// awaitQuiet waits for the machine to be quiet, at most as long as was asked for.
func (c *BooksCmd) awaitQuiet(ctx context.Context, progress io.Writer) error {
	for until := time.Now().Add(c.Quiet); time.Now().Before(until); {
		var load float64
		text, err := os.ReadFile("/proc/loadavg")
		if err == nil {
			_, err = fmt.Sscan(string(text), &load)
		}
		if err != nil || load < quietLoad {
			return err
		}
		fmt.Fprintf(progress, "waiting: the load average is %.2f\n", load)
		select {
		case <-time.After(quietPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
