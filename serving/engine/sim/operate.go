package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"millrace/internal/fault"
)

// operated is what an engine's supervisor has made of it.
type operated struct {
	mu       sync.Mutex
	ranks    int
	role     string // in its unit; "" = Config's
	resizing bool
	asleep   bool
	adapters map[string]string
	running  map[*answering]struct{}
	idle     chan struct{} // closed when nothing runs any more; nil while nobody waits
}

func (o *operated) active() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ranks
}

func (o *operated) has(adapter string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.adapters[adapter]
	return ok
}

// names are the adapters', sorted.
func (o *operated) names() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.adapters))
}

// enter takes a request in, unless the engine sleeps.
func (o *operated) enter(a *answering) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asleep {
		return fault.New(fault.Unavailable, "The engine is sleeping.")
	}
	if o.running == nil {
		o.running = map[*answering]struct{}{}
	}
	o.running[a] = struct{}{}
	return nil
}

func (o *operated) leave(a *answering) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.running, a)
	if len(o.running) == 0 && o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
}

// whenIdle waits until nothing runs; false when ctx ends first.
func (o *operated) whenIdle(ctx context.Context) bool {
	for {
		o.mu.Lock()
		if len(o.running) == 0 {
			o.mu.Unlock()
			return true
		}
		if o.idle == nil {
			o.idle = make(chan struct{})
		}
		idle := o.idle
		o.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return false
		}
	}
}

// role is what it is in its unit.
func (e *Engine) role() string {
	e.ops.mu.Lock()
	defer e.ops.mu.Unlock()
	return cmp.Or(e.ops.role, e.cfg.Role)
}

// switchRole makes prefill decode, or the other way round, when nothing runs.
func (e *Engine) switchRole(to string) error {
	e.ops.mu.Lock()
	defer e.ops.mu.Unlock()
	switch {
	case !e.cfg.RoleSwitch:
		return fault.New(fault.Invalid, "PD role switch is not enabled. Start the server with --enable-pd-role-switch.")
	case to != rolePrefill && to != roleDecode:
		return fault.New(fault.Invalid, "new_role must be prefill or decode, not %q.", to)
	case len(e.ops.running) > 0:
		return fault.New(fault.Invalid, "The instance is not idle: %d requests run.", len(e.ops.running))
	}
	e.ops.role = to
	return nil
}

// cancel ends the requests whose id is meant.
func (e *Engine) cancel(meant func(id string) bool) {
	e.ops.mu.Lock()
	var found []*answering
	for a := range e.ops.running {
		if meant(a.q.id) {
			found = append(found, a)
		}
	}
	e.ops.mu.Unlock()
	for _, a := range found {
		a.cancelled.Store(true)
		a.rank.sched.abort(a.seqs)
	}
}

// sleep gives up the caches once nothing runs.
func (e *Engine) sleep(ctx context.Context) bool {
	if !e.ops.whenIdle(ctx) {
		return false
	}
	e.ops.mu.Lock()
	e.ops.asleep = true
	e.ops.mu.Unlock()
	for _, r := range e.ranks {
		r.sched.clearCache()
	}
	return true
}

func (e *Engine) wake() {
	e.ops.mu.Lock()
	e.ops.asleep = false
	e.ops.mu.Unlock()
}

func (e *Engine) sleeping() bool {
	e.ops.mu.Lock()
	defer e.ops.mu.Unlock()
	return e.ops.asleep
}

// beginResize marks that a resize is under way; a conflict when one is already.
func (e *Engine) beginResize(ranks int) error {
	e.ops.mu.Lock()
	defer e.ops.mu.Unlock()
	switch {
	case e.cfg.Elastic == 0:
		return fault.New(fault.Invalid, "Elastic expert parallelism is not enabled.")
	case ranks < 1 || ranks > len(e.ranks):
		return fault.New(fault.Invalid, "The engine can have 1 to %d ranks, not %d.", len(e.ranks), ranks)
	case e.ops.resizing:
		return fault.New(fault.Conflict, "A resize is pending already.")
	}
	e.ops.resizing = true
	return nil
}

// endResize waits until nothing runs, since the experts move, and then has that many ranks; without any change when ctx ends
// before.
func (e *Engine) endResize(ctx context.Context, ranks int) bool {
	idle := e.ops.whenIdle(ctx)
	e.ops.mu.Lock()
	was := e.ops.ranks
	if e.ops.resizing = false; idle {
		e.ops.ranks = ranks
	}
	e.ops.mu.Unlock()
	for n := ranks; idle && n < was; n++ {
		e.ranks[n].sched.clearCache() // its memory is gone
	}
	return idle
}

func (e *Engine) isResizing() bool {
	e.ops.mu.Lock()
	defer e.ops.mu.Unlock()
	return e.ops.resizing
}

// withAdapter splits a model's name that is an adapter's: its cache is apart from everybody else's.
func (e *Engine) withAdapter(q *request) bool {
	if !e.ops.has(q.model) {
		return false
	}
	q.salt += "\x00" + q.model
	return true
}

// serveAdapter loads or unloads an adapter; answer is what the engine says when it has, or when it cannot.
func (e *Engine) serveAdapter(load bool, answer func(w http.ResponseWriter, name string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Name string `json:"lora_name"`
			Path string `json:"lora_path"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxVerbBytes)).Decode(&q); err != nil || q.Name == "" || load && q.Path == "" {
			e.writeError(w, invalid("lora_name", "Both 'lora_name' and 'lora_path' must be provided."))
			return
		}
		answer(w, q.Name, e.adapt(load, q.Name, q.Path))
	}
}

func (e *Engine) adapt(load bool, name, path string) error {
	e.ops.mu.Lock()
	defer e.ops.mu.Unlock()
	_, known := e.ops.adapters[name]
	switch {
	case load && known:
		return invalid("lora_name", "The lora adapter '%s' has already been loaded.", name)
	case load && (name == e.cfg.Model || strings.HasSuffix(name, thinkSuffix)):
		return invalid("lora_name", "'%s' is the name of a model.", name)
	case load:
		if e.ops.adapters == nil {
			e.ops.adapters = map[string]string{}
		}
		e.ops.adapters[name] = path
	case !known:
		return fault.New(fault.NotFound, "The lora adapter '%s' cannot be found.", name)
	default:
		delete(e.ops.adapters, name)
	}
	return nil
}

// maxVerbBytes bounds the body of what an engine is told.
const maxVerbBytes = 64 << 10

// verb reads a body into q and answers nothing when that fails.
func (e *Engine) verb(w http.ResponseWriter, r *http.Request, q any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxVerbBytes)).Decode(q); err != nil {
		e.writeError(w, invalid("body", "Invalid JSON format"))
		return false
	}
	return true
}
