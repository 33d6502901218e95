package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// The whole bench, too short for its figures to mean anything: every way answers without an error, and Millrace's books
// hold what was answered, no more and no less.
func TestGatewayBenchMeasuresEveryWay(t *testing.T) {
	c := GatewayCmd{Quick: true, Engine: engineHTTP, Rounds: 1, Round: time.Second, Connections: []int{4}, Dir: t.TempDir(), Program: binary(t), Profile: t.TempDir()}
	r, err := c.Measure(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Books.Check(); err != nil {
		t.Error(err)
	}
	ways := []string{direct, attached, agent}
	if r.Machine.Nginx != "" {
		ways = append(ways, nginx)
	}
	for _, way := range ways {
		for _, k := range kinds {
			s := r.find(way, k.name, 4)
			if s == nil || s.Median <= 0 {
				t.Fatalf("%s, %s answers: %+v", way, k.name, s)
			}
			if s.CPU.Database > 0 && way != attached && way != agent || s.CPU.Agent > 0 && way != agent && way != attached {
				t.Errorf("%s, %s answers: CPU time of others: %+v", way, k.name, s.CPU)
			}
		}
	}
	if len(r.Latency) != len(ways)*len(kinds) {
		t.Errorf("latency of %d ways and kinds", len(r.Latency))
	}
	for _, l := range r.Latency {
		if l.Requests == 0 || l.P50 <= 0 || l.FirstP50 > l.P50 || (l.Added == nil) != (l.Way == direct) {
			t.Errorf("%+v", l)
		}
	}
	var text bytes.Buffer
	if err := r.Print(&text); err != nil || !strings.Contains(text.String(), agent) {
		t.Errorf("%v\n%s", err, text.String())
	}
	t.Log("\n" + text.String())
}

func TestReportCompares(t *testing.T) {
	r := GatewayReport{Saturation: []Saturation{
		{Way: nginx, Answers: "whole", Connections: 16, PerSecond: []float64{100, 200, 400}},
		{Way: attached, Answers: "whole", Connections: 16, PerSecond: []float64{60, 100, 240}},
	}}
	if got := r.Ratio(attached, nginx, "whole", 16); got != 0.6 {
		t.Errorf("the median of 0.6, 0.5 and 0.6 is %g", got)
	}
	if got := r.Ratio(attached, direct, "whole", 16); got != 0 {
		t.Errorf("a ratio to what was not measured: %g", got)
	}
	var text bytes.Buffer
	if err := r.Print(&text); err != nil || !strings.Contains(text.String(), "0.60") || !strings.Contains(text.String(), "not installed") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if b, err := json.Marshal(r); err != nil || !bytes.Contains(b, []byte(`"per_second":[60,100,240]`)) {
		t.Errorf("%v %s", err, b)
	}
	for _, bad := range []Books{{Sent: 2, Booked: 1}, {Sent: 1, Booked: 2}, {Sent: 1, Booked: 1, Failed: 1}, {Problem: "x"}} {
		if bad.Check() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
	if err := (Books{Sent: 3, Booked: 3}).Check(); err != nil {
		t.Error(err)
	}
}

func TestGatewayFlagsHaveBounds(t *testing.T) {
	good := GatewayCmd{Rounds: 1, Round: time.Second, Connections: []int{1}}
	if _, err := good.plan(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []GatewayCmd{{Round: time.Second, Connections: []int{1}}, {Rounds: 1, Round: time.Hour, Connections: []int{1}},
		{Rounds: 1, Round: time.Second}, {Rounds: 1, Round: time.Second, Connections: []int{0}}} {
		if _, err := bad.plan(); err == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

func TestCPUOfCountsOwnWork(t *testing.T) {
	before := cpuOf()
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
	}
	if spent := cpuOf().sub(before); spent.Client <= 0 || spent.Program != 0 {
		t.Errorf("%+v", spent)
	}
}
