package assembly

import (
	"cmp"
	"time"

	"millrace/agents/hub"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/fleet"
)

// startFleet carries plans out: of several processes, the one that has the lease. Without demands it does nothing.
func (s *Server) startFleet() {
	limits := cmp.Or(s.cfg.FleetLimits, fleet.DefaultLimits)
	s.Fleet.Within(limits)
	e := fleet.NewExecutor(fleet.ExecutorConfig{DB: s.cfg.DB, Bus: s.cfg.Bus, Clock: s.cfg.Clock, Loads: loads{s.Hub, s.cfg.Clock}, Limits: limits})
	s.life.run("fleet", e.Run)
}

// loadFresh is how old what an agent told may be. Agents tell every second; it is less than a drain's settling time, so that nothing
// told before a drain ends it.
const loadFresh = 2500 * time.Millisecond

// loads tells how much runs in an engine, as agents tell their hubs.
type loads struct {
	hub   *hub.Hub
	clock clock.Clock
}

// Running implements fleet.Loads.
func (l loads) Running(unit ids.ID) (int, bool) {
	live, known := l.hub.LiveUnit(unit)
	if !known {
		return 0, false
	}
	return running(live, l.clock.Now())
}

// running is unknown when nobody tells any more: the last word may be that nothing ran.
func running(live hub.LiveUnit, now time.Time) (int, bool) {
	known := live.Load.State != wire.StateUnknown && now.Sub(live.Heard) <= loadFresh
	return live.Load.Running + live.Load.Waiting, known
}
