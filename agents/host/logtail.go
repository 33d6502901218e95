package host

import (
	"errors"
	"net/http"
	"os"
	"strconv"

	"millrace/agents/wire"
	"millrace/internal/ids"
)

// hubAsks is what the hub may ask over the link: for engines, as gateways do, and for their logs, which gateways may not.
func (a *agent) hubAsks() http.Handler {
	m := http.NewServeMux()
	m.Handle(wire.DataPrefix, a.relay)
	m.HandleFunc("GET "+wire.LogPrefix+"{unit}", a.sendLog)
	return m
}

func (a *agent) sendLog(w http.ResponseWriter, r *http.Request) {
	unit, err := ids.Parse(ids.Unit, r.PathValue("unit"))
	n, wrong := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
	if err != nil || wrong != nil || n <= 0 {
		http.Error(w, "which unit, and how much?", http.StatusBadRequest)
		return
	}
	text, err := a.engines.Log(unit, min(n, wire.MaxLogBytes))
	switch {
	case errors.Is(err, os.ErrNotExist):
		http.Error(w, "this host has no log of that unit", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(text)
	}
}
