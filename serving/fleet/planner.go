package fleet

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"millrace/internal/ids"
	"millrace/serving/plan"
)

// planHosts is the fleet as the planner wants it. What has not been heard of for lost counts as lost.
func (w *world) planHosts(l Limits, repair bool) []plan.Host {
	out := make([]plan.Host, 0, len(w.order))
	for _, h := range w.order {
		p := plan.Host{ID: h.ID, Name: h.Name, Provider: h.Provider, Region: h.Region, Kind: h.CapacityKind, Network: h.Network, Failure: h.FailureDomain,
			Toolchain: h.seen.Toolchain, Cordoned: h.Cordoned, Lost: h.lost, Leaving: h.Draining || h.Away, Links: map[ids.ID]float64{}}
		if repair {
			p.Lost = h.SeenMs < 0 || millis(h.SeenMs) >= l.Repair
		}
		for _, g := range h.seen.GPUs {
			if g.Domain == "" {
				g.Domain = h.Domain
			}
			if why := h.broken([]int{g.Index}); why != "" {
				g.Fault = why
			}
			p.GPUs = append(p.GPUs, g)
		}
		for i := range w.others {
			if row := &w.others[i]; *row.HostID == h.ID {
				p.Taken = append(p.Taken, h.takenBy(row)...)
			}
		}
		for _, link := range h.seen.Links {
			if peer, err := hostID(link.Peer); err == nil {
				p.Links[peer] = link.Gbps
			}
		}
		out = append(out, p)
	}
	return out
}

// hostID reads a host's id, with or without its prefix.
func hostID(text string) (ids.ID, error) {
	if strings.Contains(text, "_") {
		return ids.Parse(ids.Host, text)
	}
	return uuid.Parse(text)
}

// options bound the planner as the settings say. A few lost hosts are no mass loss, whatever their share.
func (w *world) options(seed string) plan.Options {
	o := plan.Options{Spares: int(w.settings.Spares), SparesFrom: int(w.settings.SparesFrom), MaxLost: float64(w.settings.MaxLost) / 100, AllowUnmet: true, Seed: seed}
	if w.frozen() == "" {
		o.MaxLost = 1
	}
	return o
}

// planDemands joins wishes with their recipes. A wish for nothing is none: units of its release then stay until others of the
// model take over. One whose recipe cannot be read is left out: unreadable recipes are refused before.
func (w *world) planDemands(wishes []Wish) []plan.Demand {
	out := make([]plan.Demand, 0, len(wishes))
	for i := range wishes {
		if r := w.recipes[wishes[i].Release]; r != nil && wishes[i].Units > 0 {
			out = append(out, wishes[i].demand(r))
		}
	}
	return out
}

// parent is the plan that a new one differs from, less the units that have ended; nil = none yet.
func (w *world) parent() *plan.Plan {
	if w.plan == nil {
		return nil
	}
	var ended []ids.ID
	for i := range w.plan.body.Units {
		if u := &w.plan.body.Units[i]; u.Ends != "" && w.byID[u.ID] == nil {
			ended = append(ended, u.ID)
		}
	}
	return w.plan.body.Without(ended...)
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("fleet: " + err.Error()) // ids, texts and numbers: cannot fail
	}
	return text
}

func planName(number int64) string { return fmt.Sprintf("plan %d", number) }
