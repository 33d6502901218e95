package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// GatewayReport is what one run measured.
type GatewayReport struct {
	At           time.Time    `json:"at"`
	Machine      Machine      `json:"machine"`
	Engine       string       `json:"engine"` // what its answers come from: "http" or "bare"
	Rounds       int          `json:"rounds"`
	RoundSeconds float64      `json:"round_seconds"`
	Seconds      float64      `json:"seconds"` // of the whole run
	Saturation   []Saturation `json:"saturation"`
	Latency      []Latency    `json:"latency"`
	Books        Books        `json:"books"`
}

// Saturation is one way at full load.
type Saturation struct {
	Way         string    `json:"way"`
	Answers     string    `json:"answers"`
	Connections int       `json:"connections"`
	PerSecond   []float64 `json:"per_second"` // requests, by round
	Median      float64   `json:"median"`
	CatchUpMS   []float64 `json:"catch_up_ms"` // after each round, until its requests were in the ledger
	CPU         CPU       `json:"cpu_us"`
}

// CPU is CPU time a request, in microseconds, rating and database included.
type CPU struct {
	Client   float64 `json:"client"`
	Engine   float64 `json:"engine"`
	Program  float64 `json:"program"` // nginx, or Millrace
	Agent    float64 `json:"agent"`
	Database float64 `json:"database"`
}

func (c CPU) between() float64 { return c.Program + c.Agent + c.Database }

// Capacity is the requests per second that the cores would carry if they did nothing else and nobody ever waited, by the
// CPU time alone. It moves less than a measured rate when other programs use the machine too.
func (s *Saturation) Capacity(cores int) float64 {
	return float64(cores) * 1e6 / (s.CPU.Client + s.CPU.Engine + s.CPU.between())
}

func perRequest(u cpuUse, requests int) CPU {
	us := func(d time.Duration) float64 { return micros(d) / float64(requests) }
	return CPU{us(u.Client), us(u.Engine), us(u.Program), us(u.Agent), us(u.Database)}
}

// Latency is one way at a steady rate, in microseconds: to the whole answer, and to its first byte.
type Latency struct {
	Way      string  `json:"way"`
	Answers  string  `json:"answers"`
	Rate     float64 `json:"rate"`
	Requests int     `json:"requests"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	FirstP50 float64 `json:"first_p50_us"`
	FirstP99 float64 `json:"first_p99_us"`
	Added    *Added  `json:"added_us,omitempty"` // nil for the direct way
}

// Added is what a way adds to the direct one: of medians the median difference within a round, of the 99th percentiles
// the difference over all rounds.
type Added struct {
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	FirstP50 float64 `json:"first_p50"`
	FirstP99 float64 `json:"first_p99"`
}

// Books compares what was sent through Millrace with what its ledger holds.
type Books struct {
	Sent    int    `json:"sent"`
	Booked  int    `json:"booked"`
	Failed  int    `json:"failed"`
	Problem string `json:"problem,omitempty"` // why the books could not be read
}

// Check is nil when every request is in the books.
func (b Books) Check() error {
	switch {
	case b.Problem != "":
		return fmt.Errorf("the books could not be read: %s", b.Problem)
	case b.Sent != b.Booked || b.Failed != 0:
		return fmt.Errorf("%d requests were answered whole, but %d are booked, %d of them as failed", b.Sent, b.Booked, b.Failed)
	}
	return nil
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Ratio is a way's requests per second against another's: the median of the rounds' ratios, as neighbours in time met
// the same machine. 0 = not measured.
func (r *GatewayReport) Ratio(way, to, answers string, connections int) float64 {
	a, b := r.find(way, answers, connections), r.find(to, answers, connections)
	if a == nil || b == nil {
		return 0
	}
	ratios := make([]float64, len(a.PerSecond))
	for i := range ratios {
		ratios[i] = a.PerSecond[i] / b.PerSecond[i]
	}
	return median(ratios)
}

func (r *GatewayReport) find(way, answers string, connections int) *Saturation {
	i := slices.IndexFunc(r.Saturation, func(s Saturation) bool { return s.Way == way && s.Answers == answers && s.Connections == connections })
	if i < 0 {
		return nil
	}
	return &r.Saturation[i]
}

// setting is a column of the saturation table.
type setting struct {
	answers     string
	connections int
}

func (s setting) String() string { return fmt.Sprintf("%s x%d", s.answers, s.connections) }

func (r *GatewayReport) layout() (ways []string, settings []setting) {
	for _, s := range r.Saturation {
		if !slices.Contains(ways, s.Way) {
			ways = append(ways, s.Way)
		}
		if c := (setting{s.Answers, s.Connections}); !slices.Contains(settings, c) {
			settings = append(settings, c)
		}
	}
	return ways, settings
}

// Print writes the report for people.
func (r *GatewayReport) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, r.Machine.line(r.At))
	if r.Machine.Nginx == "" {
		fmt.Fprintln(t, "nginx is not installed (Debian: nginx-light): there is nothing to compare with")
	}
	engine := "serves by Go's net/http"
	if r.Engine != engineHTTP {
		engine = "writes on bare connections"
	}
	fmt.Fprintf(t, "median of %d rounds of %gs, each way in turn; client and engine run on the same cores; the engine %s; %.0fs in all\n",
		r.Rounds, r.RoundSeconds, engine, r.Seconds)
	r.printSaturation(t)
	r.printLatency(t)
	fmt.Fprintf(t, "\nledger: %d requests were answered whole through Millrace, %d are booked \n", r.Books.Sent, r.Books.Booked)
	return t.Flush()
}

func (r *GatewayReport) printSaturation(t io.Writer) {
	ways, settings := r.layout()
	table := func(title string, cell func(s *Saturation) string) {
		fmt.Fprintf(t, "\n%s\n", title)
		head := []string{""}
		for _, c := range settings {
			head = append(head, c.String())
		}
		fmt.Fprintln(t, strings.Join(head, "\t")+"\t")
		for _, way := range ways {
			row := []string{way}
			for _, c := range settings {
				row = append(row, cell(r.find(way, c.answers, c.connections)))
			}
			fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
		}
	}
	table("requests/s at saturation (answers x connections)", func(s *Saturation) string { return fmt.Sprintf("%.0f", s.Median) })
	table("the same, against nginx", func(s *Saturation) string { return ratioText(r.Ratio(s.Way, nginx, s.Answers, s.Connections)) })
	table("the same, against direct", func(s *Saturation) string { return ratioText(r.Ratio(s.Way, direct, s.Answers, s.Connections)) })
	table("CPU, microseconds a request: client + engine + between (of it agent, database)", func(s *Saturation) string {
		text := fmt.Sprintf("%.0f + %.0f + %.0f", s.CPU.Client, s.CPU.Engine, s.CPU.between())
		if s.CPU.Database > 0 {
			text += fmt.Sprintf(" (%.0f, %.0f)", s.CPU.Agent, s.CPU.Database)
		}
		return text
	})
	table(fmt.Sprintf("by CPU time alone, %d free cores would carry (against nginx)", r.Machine.Cores), func(s *Saturation) string {
		text := fmt.Sprintf("%.0f", s.Capacity(r.Machine.Cores))
		if n := r.find(nginx, s.Answers, s.Connections); n != nil {
			text += fmt.Sprintf(" (%.2f)", s.Capacity(r.Machine.Cores)/n.Capacity(r.Machine.Cores))
		}
		return text
	})
	table("milliseconds after a round until all of it was in the ledger", func(s *Saturation) string {
		if s.Way == direct || s.Way == nginx {
			return "-"
		}
		return fmt.Sprintf("%.0f", median(s.CatchUpMS))
	})
}

func ratioText(f float64) string {
	if f == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", f)
}

func (r *GatewayReport) printLatency(t io.Writer) {
	fmt.Fprintf(t, "\nlatency at a steady rate, microseconds: whole answer p50 / p99, first byte p50 / p99; then what is added to direct\n")
	for _, l := range r.Latency {
		fmt.Fprintf(t, "%s, %s at %g/s\t%.0f / %.0f\t%.0f / %.0f\t", l.Way, l.Answers, l.Rate, l.P50, l.P99, l.FirstP50, l.FirstP99)
		if a := l.Added; a != nil {
			fmt.Fprintf(t, "%+.0f / %+.0f\t%+.0f / %+.0f\t", a.P50, a.P99, a.FirstP50, a.FirstP99)
		}
		fmt.Fprintln(t)
	}
}
