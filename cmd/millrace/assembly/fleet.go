package assembly

import (
	"cmp"

	"millrace/agents/hub"
	"millrace/internal/ids"
	"millrace/serving/fleet"
)

// startFleet carries plans out: of several processes, the one that has the lease. Without demands it does nothing.
func (s *Server) startFleet() {
	limits := cmp.Or(s.cfg.FleetLimits, fleet.DefaultLimits)
	s.Fleet.Within(limits)
	e := fleet.NewExecutor(fleet.ExecutorConfig{DB: s.cfg.DB, Bus: s.cfg.Bus, Clock: s.cfg.Clock, Loads: loads{s.Hub}, Limits: limits})
	s.life.run("fleet", e.Run)
}

// loads tells how much runs in an engine, as agents tell their hubs.
type loads struct{ hub *hub.Hub }

// Running implements fleet.Loads.
func (l loads) Running(unit ids.ID) (int, bool) {
	live, known := l.hub.LiveUnit(unit)
	return live.Load.Running + live.Load.Waiting, known
}
