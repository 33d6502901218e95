package bench

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestThePlannersBenchPlansWhatItSays(t *testing.T) {
	for _, full := range []bool{false, true} {
		c := PlannerCmd{GPUs: []int{100, 1000}, Rounds: 1, Full: full}
		report, err := c.Measure(t.Context(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Rows) != 8 {
			t.Fatalf("%d rows", len(report.Rows))
		}
		for _, r := range report.Rows {
			if r.Units == 0 || r.UsedGPUs > r.GPUs || full != (r.Unmet > 0) && r.GPUs > 100 && r.Case == "from nothing" {
				t.Errorf("full %v: %+v", full, r)
			}
			if r.Case == "again, nothing to do" && r.Moves > 0 {
				t.Errorf("planning again moves %d units", r.Moves)
			}
		}
		var out bytes.Buffer
		if err := report.Print(&out); err != nil || !strings.Contains(out.String(), "from nothing") {
			t.Errorf("the report reads %q, %v", out.String(), err)
		}
	}
	for _, c := range []PlannerCmd{{GPUs: []int{0}, Rounds: 1}, {GPUs: []int{1}}, {Rounds: 1}, {GPUs: []int{maxPlannerGPUs + 1}, Rounds: 1}} {
		if _, err := c.Measure(t.Context(), io.Discard); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
