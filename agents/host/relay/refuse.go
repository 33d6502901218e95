package relay

import (
	"encoding/json"
	"net/http"

	"millrace/agents/wire"
)

// refusals are the words to the reasons.
var refusals = map[string]string{
	wire.RefusedUnknown:  "This host does not run that unit.",
	wire.RefusedNotReady: "The unit's engine is not ready.",
	wire.RefusedDraining: "The unit is draining and takes nothing new.",
	wire.RefusedBusy:     "This host runs as many attempts as it can count.",
	wire.RefusedEngine:   "The unit's engine did not take the connection.",
}

// refuse answers in place of the engine. A reason says that the engine has seen nothing.
func refuse(w http.ResponseWriter, status int, reason, message string) {
	var body struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
			Code    string `json:"code,omitempty"`
		} `json:"error"`
	}
	body.Error.Message, body.Error.Type, body.Error.Code = message, "agent_error", reason
	text, _ := json.Marshal(body) // strings only: cannot fail
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if reason != "" {
		h.Set(wire.HeaderRefused, reason)
	}
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
