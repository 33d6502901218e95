package admin

import (
	"testing"

	"millrace/internal/ids"
	"millrace/internal/money"
)

// What brought least is added up behind the others, and nothing is lost.
func TestTheRevenuePageFoldsWhatBroughtLeast(t *testing.T) {
	var rows []RevenueRow
	for _, n := range []money.Nano{3, 9, 1, 7, 5, 7} {
		rows = append(rows, RevenueRow{Org: ids.New(), OrgName: "x", Requests: int64(n), Revenue: n})
	}
	for _, c := range []struct {
		most int
		want []money.Nano
	}{{7, []money.Nano{3, 9, 1, 7, 5, 7}}, {6, []money.Nano{3, 9, 1, 7, 5, 7}}, {5, []money.Nano{9, 7, 5, 7, 4}}, {2, []money.Nano{9, 23}}} {
		got := foldRevenue(rows, c.most)
		for i, want := range c.want {
			if len(got) != len(c.want) || got[i].Revenue != want || got[i].Requests != int64(want) {
				t.Fatalf("at most %d: %+v, want %v", c.most, got, c.want)
			}
		}
		if last := got[len(got)-1]; (len(rows) > c.most) != (last.Org == ids.Nil && last.OrgName == "All others") {
			t.Errorf("at most %d: the last is %+v", c.most, last)
		}
	}
}
