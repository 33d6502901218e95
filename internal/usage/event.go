package usage

import (
	"encoding/json"
	"errors"
	"fmt"

	"millrace/internal/ids"
	"millrace/internal/money"
)

// Ending says how a request ended; it decides what is paid (docs/money-path.md).
type Ending string

// The endings.
const (
	Complete       Ending = "complete"        // the whole answer was handed over
	ClientLeft     Ending = "client_left"     // the client closed a stream, or a whole answer, before its end
	EngineFailed   Ending = "engine_failed"   // the engine broke after the first token
	FailedUnbilled Ending = "failed_unbilled" // nothing was delivered: nothing is paid
	CapReached     Ending = "cap_reached"     // the hold could not be extended: the stream was ended, delivered tokens are paid
	GatewayDied    Ending = "gateway_died"    // closed by the rater from the last progress event
	Quarantined    Ending = "quarantined"     // only told of a request, never written: the rater set its event aside, nothing is paid
)

// Known reports whether e is one of the endings that an event can have.
func (e Ending) Known() bool {
	switch e {
	case Complete, ClientLeft, EngineFailed, FailedUnbilled, CapReached, GatewayDied:
		return true
	}
	return false
}

// Attempt is one try at an engine. The last one served the request.
type Attempt struct {
	ID   ids.ID `json:"id"`
	Unit ids.ID `json:"unit"`
	Note string `json:"note,omitempty"` // why it was abandoned; empty for the last

	// A request that several engines served has a leg for each. Prompt and Generated are what of the bill comes from this
	// one; the last attempt's share is what the others leave.
	Leg       Leg   `json:"leg,omitempty"`
	Prompt    int64 `json:"prompt,omitempty"`
	Generated int64 `json:"generated,omitempty"`
}

// Leg is an engine's part in a request that several serve; "" = it does all of it.
type Leg string

// The legs.
const (
	LegEncode  Leg = "encode"  // an image
	LegPrefill Leg = "prefill" // computed the prompt for another engine
	LegDecode  Leg = "decode"  // took the prompt's cache over
	LegReplay  Leg = "replay"  // began the answer; another engine went on with what was delivered
)

// Event is what a gateway says about one request. Progress 0 is final; a positive Progress is a snapshot of a running
// stream (growing counter) that is billed only if the gateway dies before the final event.
type Event struct {
	ID           ids.ID          `json:"id"` // UUIDv7; unique per request; its day is the partition
	Progress     int64           `json:"progress,omitempty"`
	Org          ids.ID          `json:"org"`
	Project      ids.ID          `json:"project"`
	Key          ids.ID          `json:"key"`
	Model        ids.ID          `json:"model"`
	PriceVersion ids.ID          `json:"price"`
	Epoch        ids.ID          `json:"epoch"`
	Budgets      []ids.ID        `json:"budgets"` // every scope whose allotment the charge was taken from; sorted
	OrgBudget    ids.ID          `json:"org_budget"`
	Attempts     []Attempt       `json:"attempts,omitempty"`
	Usage        Vector          `json:"usage"`
	Raw          json.RawMessage `json:"raw,omitempty"`   // the engine's own usage object, unchanged; at most MaxRawBytes
	Doubt        string          `json:"doubt,omitempty"` // why Usage is Impossible, in words; at most MaxDoubtBytes
	Charge       money.Nano      `json:"charge"`          // what the gateway charged its allotments
	Ending       Ending          `json:"ending"`
	Estimated    bool            `json:"estimated,omitempty"` // the cached share is a prediction, rounded in the customer's favour
	Streamed     bool            `json:"streamed,omitempty"`
	Service      Service         `json:"service,omitempty"`
	Dialect      string          `json:"dialect"` // chat, responses, messages
	Status       int             `json:"status"`  // HTTP status sent
	StartedMS    int64           `json:"started_ms"`
	FirstTokenMS int64           `json:"first_token_ms,omitempty"` // unix milliseconds; 0 = none
	EndedMS      int64           `json:"ended_ms"`
}

// Limits of the log format.
const (
	MaxRawBytes   = 4 << 10
	MaxDoubtBytes = 300
	MaxAttempts   = 56 // of a request with images that several engines serve
	MaxBudgets    = 16
	MaxEventBytes = 16 << 10
)

// Validate checks the event's shape. What fails is quarantined by the rater.
func (e *Event) Validate() error {
	switch {
	case e.ID.Version() != 7 || e.Org == ids.Nil || e.Epoch == ids.Nil || e.Model == ids.Nil:
		return errors.New("usage: event without id, org, epoch or model")
	case e.Progress < 0 || e.Charge < 0:
		return errors.New("usage: negative progress or charge")
	case !e.Ending.Known():
		return fmt.Errorf("usage: unknown ending %q", e.Ending)
	case !e.Service.Known():
		return fmt.Errorf("usage: unknown service tier %q", e.Service)
	case len(e.Attempts) > MaxAttempts || len(e.Budgets) > MaxBudgets || len(e.Raw) > MaxRawBytes || len(e.Doubt) > MaxDoubtBytes:
		return errors.New("usage: event above its size limits")
	case e.Usage == Impossible && e.Doubt != "":
		return fmt.Errorf("usage: the engine's count cannot be right: %s", e.Doubt)
	}
	return e.Usage.Validate()
}
