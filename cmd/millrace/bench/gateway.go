package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"millrace/serving/bench"
)

// GatewayCmd compares the ways to an engine in one run: direct, through nginx, through Millrace with the engine attached,
// and through Millrace with the engine behind an agent.
type GatewayCmd struct {
	Rounds      int           `help:"Rounds of each measurement; in every round each way has its turn." default:"5"`
	Round       time.Duration `help:"Length of a turn." default:"1s"`
	Connections []int         `help:"Connections at saturation." default:"16,64"`
	Engine      string        `help:"What the engine's answers come from: Go's net/http, or bare connections, which are cheaper than any real engine's server." enum:"http,bare" default:"http"`
	Quick       bool          `help:"One short round of everything, to see that it works: its figures mean little."`
	JSON        bool          `name:"json" help:"Print the report as JSON."`
	Dir         string        `help:"Where the temporary data folder is made; a memory file system would flatter." placeholder:"DIR"`
	Profile     string        `help:"Also save CPU profiles of Millrace at saturation in this folder." placeholder:"DIR" hidden:""`
	Program     string        `help:"The millrace program; default: this one." hidden:""`
}

// Limits of the flags.
const (
	maxRounds = 100
	maxRound  = time.Minute
)

// Run is the command.
func (c *GatewayCmd) Run(ctx context.Context) error {
	report, err := c.Measure(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if c.JSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(report)
	} else {
		err = report.Print(os.Stdout)
	}
	return errors.Join(err, report.Books.Check())
}

// Measure starts everything, measures, ends everything, and tells of its progress.
func (c *GatewayCmd) Measure(ctx context.Context, progress io.Writer) (report *GatewayReport, err error) {
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	program := c.Program
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	dir, err := tempDir(c.Dir)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(progress, "starting an engine, nginx and Millrace in %s\n", dir)
	began := time.Now()
	s, err := startStand(ctx, dir, program, c.Engine)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	report = &GatewayReport{At: began.UTC(), Engine: c.Engine, Machine: thisMachine(dir, s.nginx), Rounds: p.rounds, RoundSeconds: p.round.Seconds()}
	if s.nginx == "" {
		fmt.Fprintln(progress, "nginx is not installed: its column is missing, and so are the ratios to it")
	}
	m := &measurer{plan: p, stand: s, progress: progress, report: report}
	if err := m.all(ctx); err != nil {
		return nil, err
	}
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// tempDir makes a folder that the user PostgreSQL runs as can pass through.
func tempDir(under string) (string, error) {
	dir, err := os.MkdirTemp(under, "millrace-bench-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// plan is what is measured and for how long.
type plan struct {
	rounds      int
	round       time.Duration
	warmup      time.Duration
	connections []int
	profile     string // folder; "" = none
	profiling   time.Duration
}

// Open-loop rates: answers come far slower than they could, so what is measured is latency, not queueing.
const (
	wholeRate       = 200 // requests a second
	streamedRate    = 50
	rateConnections = 16
)

func (c *GatewayCmd) plan() (plan, error) {
	if c.Rounds < 1 || c.Rounds > maxRounds || c.Round <= 0 || c.Round > maxRound || len(c.Connections) == 0 {
		return plan{}, fmt.Errorf("want 1 to %d rounds of at most %s, and --connections", maxRounds, maxRound)
	}
	for _, n := range c.Connections {
		if n < 1 || n > bench.MaxConnections {
			return plan{}, fmt.Errorf("--connections: want 1 to %d", bench.MaxConnections)
		}
	}
	p := plan{rounds: c.Rounds, round: c.Round, warmup: 300 * time.Millisecond, connections: c.Connections,
		profile: c.Profile, profiling: 8 * time.Second}
	if c.Quick {
		p.rounds, p.round, p.warmup, p.connections, p.profiling = 1, 300*time.Millisecond, 50*time.Millisecond, c.Connections[:1], time.Second
	}
	return p, nil
}
