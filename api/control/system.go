package control

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"time"

	"millrace/internal/ids"
)

// openapi describes the API. A test compares it with the routes, field by field.
//
//go:embed openapi.yaml
var openapi []byte

func description() route {
	r := get("/openapi.yaml", "getDescription", func(*call, none) ([]byte, error) { return openapi, nil })
	r.public, r.contentType = true, "application/yaml"
	r.status = http.StatusOK
	return r
}

// Status is how the installation is.
type Status struct {
	Version    string  `json:"version"`
	RaterLagMS int64   `json:"rater_lag_ms"`
	OpenEpochs []Epoch `json:"open_epochs"`
}

// Epoch is one life of a gateway process whose money has not all come back.
type Epoch struct {
	ID          string    `json:"id"`
	Process     string    `json:"process"`
	StartedAt   time.Time `json:"started_at"`
	HeartbeatAt time.Time `json:"heartbeat_at"`
	Outstanding Amount    `json:"outstanding"`
}

func (a *api) status(c *call, _ none) (Status, error) {
	s, err := a.System.Status(c)
	if err != nil {
		return Status{}, err
	}
	out := Status{Version: s.Version, RaterLagMS: s.RaterLag.Milliseconds(), OpenEpochs: make([]Epoch, len(s.OpenEpochs))}
	for i, e := range s.OpenEpochs {
		out.OpenEpochs[i] = Epoch{ID: ids.Format(ids.Epoch, e.ID), Process: e.Process, StartedAt: e.StartedAt, HeartbeatAt: e.HeartbeatAt, Outstanding: amount(e.Outstanding)}
	}
	return out, nil
}

// Reconciliation is the outcome of a reconcile run.
type Reconciliation struct {
	At          time.Time       `json:"at"`
	Watermark   time.Time       `json:"watermark"`
	Unexplained bool            `json:"unexplained"`
	Report      json.RawMessage `json:"report"`
}

func (a *api) reconcile(c *call) (Reconciliation, error) {
	r, err := a.System.Reconcile(c, c.actor)
	return Reconciliation(r), err
}
