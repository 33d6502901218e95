package sim

import (
	"context"
	"net/http"
	"strings"

	"millrace/internal/fault"
)

// sglangVerbs are SGLang's.
func (e *Engine) sglangVerbs(m *http.ServeMux) {
	m.HandleFunc("POST /abort_request", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID string `json:"rid"`
		}
		if e.verb(w, r, &q) {
			e.cancel(func(running string) bool { return strings.HasPrefix(running, q.ID) }) // nothing means all
		}
	})
	m.HandleFunc("POST /release_memory_occupation", func(w http.ResponseWriter, r *http.Request) {
		if running, waiting, _, _ := e.load(); running+waiting > 0 {
			e.writeError(w, fault.New(fault.Invalid, "release_memory_occupation should be called only when no ongoing request."))
			return
		}
		e.sleep(r.Context())
	})
	m.HandleFunc("POST /resume_memory_occupation", func(http.ResponseWriter, *http.Request) { e.wake() })
	adapted := func(w http.ResponseWriter, name string, err error) {
		if err != nil {
			writeJSON(w, http.StatusBadRequest, map[string]any{"success": false, "error_message": fault.Of(err).Message, "loaded_adapters": nil})
			return
		}
		writeJSON(w, http.StatusOK, map[string]any{"success": true, "error_message": "", "loaded_adapters": map[string]string{name: name}})
	}
	m.HandleFunc("POST /load_lora_adapter", e.serveAdapter(true, adapted))
	m.HandleFunc("POST /unload_lora_adapter", e.serveAdapter(false, adapted))
	m.HandleFunc("GET /is_scaling_elastic_ep", func(w http.ResponseWriter, _ *http.Request) {
		if e.cfg.Elastic == 0 {
			notElastic(w)
			return
		}
		writeJSON(w, http.StatusOK, map[string]any{"is_scaling_elastic_ep": e.isResizing(), "effective_ep_size": e.ops.active()})
	})
	m.HandleFunc("POST /scale_elastic_ep", e.sglangResize)
	m.HandleFunc("POST /pd_role_switch", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Role string `json:"new_role"`
		}
		if !e.verb(w, r, &q) {
			return
		}
		if err := e.switchRole(q.Role); err != nil {
			e.writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, map[string]any{"success": true, "role": q.Role})
	})
	m.HandleFunc("GET /model_info", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"model_path": e.cfg.Model, "disaggregation_mode": e.role()})
	})
}

func notElastic(w http.ResponseWriter) {
	writeJSON(w, http.StatusNotFound, map[string]string{"error": "elastic EP is not enabled (set --elastic-ep-backend)"})
}

// sglangResize answers at once and goes up only. What runs goes on; it is done once that has ended.
func (e *Engine) sglangResize(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Ranks int `json:"new_ep_size"`
	}
	if !e.verb(w, r, &q) {
		return
	}
	if e.cfg.Elastic == 0 {
		notElastic(w)
		return
	}
	was := e.ops.active()
	if q.Ranks <= was {
		e.writeError(w, fault.New(fault.Invalid, "new_ep_size %d must be larger than the current one, %d.", q.Ranks, was))
		return
	}
	if err := e.beginResize(q.Ranks); err != nil {
		e.writeError(w, err)
		return
	}
	e.background.Go(func() { e.endResize(context.Background(), q.Ranks) })
	writeJSON(w, http.StatusOK, map[string]any{"message": "Scaling has begun.", "old_ep_size": was, "new_ep_size": q.Ranks})
}
