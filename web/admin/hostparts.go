package admin

import (
	"fmt"

	"millrace/web/ui"
)

func (h Host) problemGrid() ui.Grid {
	g := ui.Grid{Caption: "Problems", Cards: true, Columns: []ui.Column{{Name: "What"}, {Name: "Problem", Wrap: true}, {Name: "Consequence"}, {Name: "Since"}}}
	for _, p := range h.Problems {
		tone, word := ui.Warn, "watched"
		if p.Fatal {
			tone, word = ui.Bad, "not used"
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(p.Subject), ui.T(p.Text), ui.N(ui.Tag(tone, word), word), ui.Ago(p.Since)})
	}
	return g
}

func (h Host) nicGrid() ui.Grid {
	g := ui.Grid{Caption: "Network interfaces", Cards: true, Columns: []ui.Column{{Name: "Interface"}, {Name: "State"}, {Name: "Speed", Num: true}, {Name: "RDMA"}}}
	for _, n := range h.NICs {
		tone, word := ui.Good, "up"
		if !n.Up {
			tone, word = ui.Bad, "down"
		}
		speed := "–"
		if n.Gbps > 0 {
			speed = fmt.Sprintf("%d Gbit/s", n.Gbps)
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(n.Name), ui.N(ui.Tag(tone, word), word), ui.T(speed), ui.T(orDash(n.RDMA))})
	}
	return g
}

func (h Host) fabricGrid() ui.Grid {
	g := ui.Grid{Caption: "Measured by the agents", Cards: true, Columns: []ui.Column{{Name: "To"}, {Name: "Throughput", Num: true}, {Name: "Round trip", Num: true}, {Name: "Measured"}}}
	for _, l := range h.Fabric {
		g.Rows = append(g.Rows, ui.Row{ui.T(l.Peer), ui.T(fmt.Sprintf("%.1f Gbit/s", l.Gbps)), ui.T(fmt.Sprintf("%d µs", l.RTT.Microseconds())), ui.Ago(l.At)})
	}
	return g
}
