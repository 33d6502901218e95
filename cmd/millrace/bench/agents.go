package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// AgentsCmd measures what agents cost their hub: many of them in one process, on the real wire (mTLS, WebSocket, yamux),
// each with one unit, against a hub with a PostgreSQL and a NATS made for it. They are at rest, then all units' loads change
// with every look, then desired state changes on some hosts, then the hub is replaced and all come back at once.
type AgentsCmd struct {
	Agents  int           `help:"Agents, each a host with one unit; ten thousand take about five cores." default:"1000"`
	Changed int           `help:"Hosts whose desired state changes at once." default:"100"`
	For     time.Duration `help:"How long each steady state is measured." default:"20s"`
	JSON    bool          `name:"json" help:"Print the report as JSON."`
	Dir     string        `help:"Where the temporary data folder is made; a memory file system would flatter." placeholder:"DIR"`
	Swarm   bool          `hidden:""` // be the agents: started by the command itself

	inside bool // the agents run in this process: for tests
}

// Limits of the flags and of the run.
const (
	maxAgents     = 50_000
	maxAgentsFor  = time.Minute
	comeTime      = 90 * time.Second // for all agents to be linked
	agentsLimit   = 8 * time.Minute
	changeTimeout = 30 * time.Second
)

// AgentsReport is what one run measured.
type AgentsReport struct {
	At      time.Time    `json:"at"`
	Machine Machine      `json:"machine"`
	Agents  int          `json:"agents"`
	Rows    []AgentsCost `json:"rows"`
	// How long it took, in seconds: all agents to link at first and after the hub's replacement, and a change to be applied.
	First     float64 `json:"first_s"`
	Back      float64 `json:"back_s"`
	BackHalf  float64 `json:"back_half_s"`
	BackDials int64   `json:"back_dials"` // connections that were made for it
	Changed   int     `json:"changed"`
	ChangedIn float64 `json:"changed_s"`
	HeapMiB   float64 `json:"hub_heap_mib"` // with all agents linked
}

// AgentsCost is a phase: what an agent costs in each part. For a steady state it is a second's, else the whole of it.
type AgentsCost struct {
	Phase    string  `json:"phase"`
	Seconds  float64 `json:"seconds"`
	Hub      float64 `json:"cpu_hub_us"` // the hub, and the bus in its process
	Database float64 `json:"cpu_database_us"`
	Swarm    float64 `json:"cpu_agent_us"`
	Up       float64 `json:"bytes_up"` // to the hub, as TLS sends it
	Down     float64 `json:"bytes_down"`
}

// Run is the command.
func (c *AgentsCmd) Run(ctx context.Context) error {
	if c.Swarm {
		return swarm(ctx, os.Stdin)
	}
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

// Measure starts what is needed, measures, ends it all, and tells of its progress.
func (c *AgentsCmd) Measure(ctx context.Context, progress io.Writer) (report *AgentsReport, err error) {
	if c.Agents < 1 || c.Agents > maxAgents || c.Changed < 0 || c.Changed > c.Agents || c.For <= 0 || c.For > maxAgentsFor {
		return nil, fmt.Errorf("want 1 to %d agents, of which at most all change, and at most %s a phase", maxAgents, maxAgentsFor)
	}
	ctx, cancel := context.WithTimeout(ctx, agentsLimit)
	defer cancel()
	dir, err := tempDir(c.Dir)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	report = &AgentsReport{At: time.Now().UTC(), Machine: thisMachine(dir, ""), Agents: c.Agents, Changed: c.Changed}
	fmt.Fprintf(progress, "starting PostgreSQL and NATS in %s\n", dir)
	s, err := openAgentsSide(ctx, dir, c.Agents)
	if err != nil {
		return nil, err
	}
	defer func() { err = s.close(err) }()
	return report, c.phases(ctx, s, report, progress)
}

// phases is the run itself.
func (c *AgentsCmd) phases(ctx context.Context, s *agentsSide, report *AgentsReport, progress io.Writer) error {
	say := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	say("%d agents link", c.Agents)
	if err := s.startSwarm(ctx, c.inside); err != nil {
		return err
	}
	began := s.mark()
	first, _, err := s.untilLinked(ctx, c.Agents)
	if err != nil {
		return err
	}
	report.First = first.Seconds()
	report.add("all link for the first time", s.mark().since(began), c.Agents, false)
	for _, phase := range []struct {
		name string
		busy bool
	}{{"at rest, a second", false}, {"every load changes, a second", true}} {
		say("%s: %s", phase.name, c.For)
		if err := s.tellSwarm(phase.busy); err != nil {
			return err
		}
		if err := pause(ctx, settleTime); err != nil {
			return err
		}
		began = s.mark()
		if err := pause(ctx, c.For); err != nil {
			return err
		}
		report.add(phase.name, s.mark().since(began), c.Agents, true)
	}
	report.HeapMiB = heapMiB()
	if err := s.tellSwarm(false); err != nil {
		return err
	}
	say("desired state changes on %d hosts", c.Changed)
	took, err := s.change(ctx, c.Changed)
	if err != nil {
		return err
	}
	report.ChangedIn = took.Seconds()
	say("the hub is replaced")
	began = s.mark()
	if err := s.replaceHub(ctx); err != nil {
		return err
	}
	all, half, err := s.untilLinked(ctx, c.Agents)
	if err != nil {
		return err
	}
	report.Back, report.BackHalf = all.Seconds(), half.Seconds()
	spent := s.mark().since(began)
	report.BackDials = spent.dials
	report.add("all come back to another hub", spent, c.Agents, false)
	return nil
}

func (r *AgentsReport) add(phase string, m agentsMark, agents int, each bool) {
	n := float64(agents)
	if each {
		n *= m.at.Seconds()
	}
	r.Rows = append(r.Rows, AgentsCost{Phase: phase, Seconds: m.at.Seconds(), Hub: micros(m.cpu.Client) / n, Database: micros(m.cpu.Database) / n,
		Swarm: micros(m.cpu.Program) / n, Up: float64(m.up) / n, Down: float64(m.down) / n})
}

// Print is the report for people.
func (r *AgentsReport) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%d agents of one unit each, in one process; for each agent:\n\n", r.Machine.line(r.At), r.Agents)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\ttook s\tCPU us: hub\tPostgreSQL\tagent\tbytes to the hub\tfrom it\t")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t\n", x.Phase, x.Seconds, x.Hub, x.Database, x.Swarm, x.Up, x.Down)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nback after the hub's replacement: half in %.1f s, all in %.1f s, %d connections; a change on %d hosts applied in %.2f s; the hub's heap %.0f MiB\n",
		r.BackHalf, r.Back, r.BackDials, r.Changed, r.ChangedIn, r.HeapMiB)
	return err
}
