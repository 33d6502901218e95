package assembly

import (
	"millrace/serving/batch"
	"millrace/serving/gate"
	"millrace/tenants/keys"
)

// openBatches makes files and batches, and works on batches: this gateway's customers' and others'.
func (s *Server) openBatches(g *gate.Gate, auth *keys.Authenticator, e batch.Endpoints) (*batch.Store, *batch.Runner) {
	store := batch.New(s.cfg.DB, s.cfg.Clock, e)
	runner := batch.NewRunner(batch.Options{Store: store, Gate: g, Models: s.Catalogue, Keys: auth, Router: s.Router})
	s.serving.run("batches", runner.Run)
	s.serving.onEnd("batches", runner.Stop)
	return store, runner
}
