package sim

import (
	"fmt"
	"net/http"
	"strings"
)

// vllmVerbs are the endpoints of vLLM's development mode, of its adapters and of its elastic ranks.
func (e *Engine) vllmVerbs(m *http.ServeMux) {
	m.HandleFunc("POST /inference/v1/abort_requests", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			IDs []string `json:"request_ids"`
		}
		if e.verb(w, r, &q) {
			for _, id := range q.IDs {
				id = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(id, "chat"), "cmpl-"), "-0")
				e.cancel(func(running string) bool { return running == id })
			}
		}
	})
	m.HandleFunc("POST /sleep", func(w http.ResponseWriter, r *http.Request) {
		if e.sleep(r.Context()) {
			writeJSON(w, http.StatusOK, map[string]any{"status": "sleeping", "level": 1})
		}
	})
	m.HandleFunc("POST /wake_up", func(w http.ResponseWriter, _ *http.Request) {
		e.wake()
		writeJSON(w, http.StatusOK, map[string]any{"status": "awake", "tags": nil})
	})
	m.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"is_sleeping": e.sleeping()})
	})
	adapted := func(done string) func(w http.ResponseWriter, name string, err error) {
		return func(w http.ResponseWriter, name string, err error) {
			if err != nil {
				e.writeError(w, err)
				return
			}
			_, _ = fmt.Fprintf(w, "Success: LoRA adapter '%s' %s successfully.", name, done)
		}
	}
	m.HandleFunc("POST /v1/load_lora_adapter", e.serveAdapter(true, adapted("added")))
	m.HandleFunc("POST /v1/unload_lora_adapter", e.serveAdapter(false, adapted("removed")))
	m.HandleFunc("POST /scale_elastic_ep", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Ranks int `json:"new_data_parallel_size"`
		}
		if !e.verb(w, r, &q) {
			return
		}
		if err := e.beginResize(q.Ranks); err != nil {
			e.writeError(w, err)
			return
		}
		if !e.endResize(r.Context(), q.Ranks) {
			writeJSON(w, http.StatusRequestTimeout, map[string]string{"detail": "Scale failed due to request drain timeout"})
			return
		}
		writeJSON(w, http.StatusOK, map[string]string{"message": fmt.Sprintf("Scaled to %d data parallel engines", q.Ranks)})
	})
	scaling := func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"is_scaling_elastic_ep": e.isResizing()})
	}
	m.HandleFunc("GET /is_scaling_elastic_ep", scaling)
	m.HandleFunc("POST /is_scaling_elastic_ep", scaling)
}

// vllmShut reports whether vLLM answers nothing at this path while it is being resized.
func (e *Engine) vllmShut(path string) bool {
	return path != "/health" && path != "/is_scaling_elastic_ep" && e.isResizing()
}
