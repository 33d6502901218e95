package bench

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

func TestTheAgentsBenchLinksThemAll(t *testing.T) {
	c := AgentsCmd{Agents: 20, Changed: 5, For: time.Second, inside: true, Dir: t.TempDir()}
	report, err := c.Measure(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 4 || report.First <= 0 || report.Back <= 0 || report.BackDials < 20 || report.ChangedIn <= 0 {
		t.Fatalf("%+v", report)
	}
	rest, busy := report.Rows[1], report.Rows[2]
	if rest.Up <= 0 || report.Rows[0].Down <= 0 || rest.Hub <= 0 || busy.Up <= rest.Up {
		t.Errorf("at rest %+v, busy %+v", rest, busy)
	}
	var out bytes.Buffer
	if err := report.Print(&out); err != nil || !strings.Contains(out.String(), "20 agents") {
		t.Errorf("the report reads %q, %v", out.String(), err)
	}
	for _, c := range []AgentsCmd{{For: time.Second}, {Agents: maxAgents + 1, For: time.Second}, {Agents: 1, Changed: 2, For: time.Second}, {Agents: 1}} {
		if _, err := c.Measure(t.Context(), io.Discard); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
