package bus

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// repairPause is the least time between two repairs.
const repairPause = 5 * time.Second

// Repair opens the stores of a server in this process anew: one that could not write once, because its disk was full,
// takes no more until then, even when there is room again. What was acknowledged is kept. Somebody else's server is left
// alone, and so is one that was repaired just now.
func (b *Bus) Repair(ctx context.Context) error {
	if b.server == nil {
		return nil
	}
	return b.server.repair(ctx)
}

func (s *Server) repair(ctx context.Context) error {
	s.repairing.Lock()
	defer s.repairing.Unlock()
	if s.stopped || time.Since(s.repaired) < repairPause || ctx.Err() != nil {
		return ctx.Err()
	}
	s.repaired = time.Now()
	if err := s.ns.ShutdownJetStream(); err != nil {
		return fmt.Errorf("bus: repair: %w", err)
	}
	config := s.config // EnableJetStream changes it
	if err := s.ns.EnableJetStream(&config); err != nil {
		return fmt.Errorf("bus: repair: %w", err)
	}
	if !s.ns.JetStreamEnabled() {
		return errors.New("bus: repair: the stores do not open; has the disk room?")
	}
	return nil
}
