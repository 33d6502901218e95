package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	placement "millrace/serving/plan"
)

// PlannerCmd measures how long a plan takes by the size of the fleet: from nothing, planned again with nothing to do, after
// a loss of hosts, and when a release changes. It needs no store and no network.
type PlannerCmd struct {
	GPUs   []int `name:"gpus" help:"Sizes of fleets, in GPUs." default:"100,1000,10000,20000"`
	Rounds int   `help:"Rounds; the median counts." default:"5"`
	Full   bool  `help:"Demand more than fits: the search and the refusals are dearest then."`
	JSON   bool  `name:"json" help:"Print the report as JSON."`
}

// Limits of the flags.
const (
	maxPlannerGPUs   = 200_000
	maxPlannerRounds = 100
)

// PlannerReport is what one run measured.
type PlannerReport struct {
	At      time.Time     `json:"at"`
	Machine Machine       `json:"machine"`
	Rounds  int           `json:"rounds"`
	Full    bool          `json:"full"`
	Rows    []PlannerTime `json:"rows"`
}

// PlannerTime is one kind of plan on one fleet.
type PlannerTime struct {
	GPUs     int     `json:"gpus"`
	Hosts    int     `json:"hosts"`
	Case     string  `json:"case"`
	MS       float64 `json:"ms"` // median
	MaxMS    float64 `json:"max_ms"`
	CPUMS    float64 `json:"cpu_ms"` // of the process, median: what others do on the machine is not in it
	Allocs   uint64  `json:"allocations"`
	MiB      float64 `json:"allocated_mib"`
	Units    int     `json:"units"`
	UsedGPUs int     `json:"used_gpus"`
	Unmet    int     `json:"unmet"`
	Moves    int     `json:"moves"`
}

// Run is the command.
func (c *PlannerCmd) Run(ctx context.Context) error {
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

// Measure plans and tells of its progress. Every plan is checked; one that does not keep the rules fails the run.
func (c *PlannerCmd) Measure(ctx context.Context, progress io.Writer) (*PlannerReport, error) {
	if c.Rounds < 1 || c.Rounds > maxPlannerRounds || len(c.GPUs) == 0 || slices.Min(c.GPUs) < 1 || slices.Max(c.GPUs) > maxPlannerGPUs {
		return nil, fmt.Errorf("want 1 to %d rounds and fleets of 1 to %d GPUs", maxPlannerRounds, maxPlannerGPUs)
	}
	report := &PlannerReport{At: time.Now().UTC(), Machine: thisMachine(os.TempDir(), ""), Rounds: c.Rounds, Full: c.Full}
	for _, gpus := range c.GPUs {
		fmt.Fprintf(progress, "a fleet of %d GPUs\n", gpus)
		rows, err := c.fleet(ctx, gpus)
		if err != nil {
			return nil, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	return report, nil
}

// fleet measures the four kinds of plans on one fleet.
func (c *PlannerCmd) fleet(ctx context.Context, gpus int) (rows []PlannerTime, err error) {
	hosts := plannerFleet(gpus)
	demands := plannerDemands(gpus, c.Full)
	first, row, err := c.time(ctx, "from nothing", gpus, hosts, demands, nil)
	if err != nil {
		return nil, err
	}
	rows = append(rows, row)
	for _, next := range []struct {
		name    string
		hosts   []placement.Host
		demands []placement.Demand
	}{
		{"again, nothing to do", hosts, demands},
		{"1 % of hosts lost", plannerLoss(hosts), demands},
		{"a release changes", hosts, plannerRelease(demands)},
	} {
		_, row, err := c.time(ctx, next.name, gpus, next.hosts, next.demands, first)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (c *PlannerCmd) time(ctx context.Context, name string, gpus int, hosts []placement.Host, demands []placement.Demand, current *placement.Plan) (*placement.Plan, PlannerTime, error) {
	row := PlannerTime{GPUs: gpus, Hosts: len(hosts), Case: name}
	o := placement.Options{Spares: 8, SparesFrom: 72, AllowUnmet: true}
	var times, cpu []float64
	var p *placement.Plan
	for range c.Rounds {
		if err := ctx.Err(); err != nil {
			return nil, row, err
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		spent, start := cpuSelf(), time.Now()
		made, err := placement.Make(hosts, demands, current, o)
		times = append(times, float64(time.Since(start).Microseconds())/1e3)
		cpu = append(cpu, float64((cpuSelf()-spent).Microseconds())/1e3)
		runtime.ReadMemStats(&after)
		if err != nil {
			return nil, row, err
		}
		if err := made.Check(hosts, demands, o); err != nil {
			return nil, row, err
		}
		p = made
		row.Allocs, row.MiB = after.Mallocs-before.Mallocs, float64(after.TotalAlloc-before.TotalAlloc)/(1<<20)
	}
	slices.Sort(times)
	slices.Sort(cpu)
	row.MS, row.MaxMS, row.CPUMS = times[len(times)/2], times[len(times)-1], cpu[len(cpu)/2]
	row.Units, row.Moves = len(p.Units), len(p.Moves)
	for i := range p.Units {
		row.UsedGPUs += p.Units[i].Size()
	}
	for _, u := range p.Unmet {
		row.Unmet += u.Units
	}
	return p, row, nil
}

// Print is the report for people.
func (r *PlannerReport) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s\nmedian of %d rounds; every plan keeps the rules\n\n", r.Machine.line(r.At), r.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "GPUs\thosts\tplan\tms\tmost ms\tCPU ms\tallocations\tMiB\tunits\tGPUs used\tunmet\tmoves\t\n")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%d\t%d\t%s\t%.1f\t%.1f\t%.1f\t%d\t%.1f\t%d\t%d\t%d\t%d\t\n", x.GPUs, x.Hosts, x.Case, x.MS, x.MaxMS, x.CPUMS, x.Allocs, x.MiB, x.Units, x.UsedGPUs, x.Unmet, x.Moves)
	}
	return t.Flush()
}
