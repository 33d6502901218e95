package stripefake

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxBody = 1 << 20

// call is one request of the API. Handlers run with the server's lock held.
type call struct {
	id     string // of the path
	params url.Values
	expand []string
}

// metadata are the parameters metadata[…] under a prefix.
func (c *call) metadata(prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range c.params {
		if name, ok := strings.CutPrefix(k, prefix+"metadata["); ok {
			out[strings.TrimSuffix(name, "]")] = v[0]
		}
	}
	return out
}

func (c *call) number(name string) int64 {
	n, _ := strconv.ParseInt(c.params.Get(name), 10, 64)
	return n
}

// wants reports whether something is to be shown whole and not by its id.
func (c *call) wants(what string) bool {
	return slices.Contains(c.expand, what) || slices.Contains(c.expand, "data."+what)
}

// reply is an answer.
type reply struct {
	status int
	body   any
	retry  string // Stripe-Should-Retry
}

func ok(body any) *reply { return &reply{status: http.StatusOK, body: body} }

// apiError is the body of a failure.
type apiError struct {
	Type        string `json:"type"`
	Code        string `json:"code,omitempty"`
	DeclineCode string `json:"decline_code,omitempty"`
	Message     string `json:"message"`
	Param       string `json:"param,omitempty"`
	Charge      string `json:"charge,omitempty"`
	Intent      any    `json:"payment_intent,omitempty"`
}

func failure(status int, kind, code, message string) *reply {
	return &reply{status: status, body: map[string]any{"error": apiError{Type: kind, Code: code, Message: message}}}
}

// missing refuses an id of the path that is not known.
func missing(what, id string) *reply {
	return failure(http.StatusNotFound, "invalid_request_error", "resource_missing", "No such "+what+": '"+id+"'")
}

// missingParam refuses an id that is not known and was given as a parameter, as Stripe does: with another status.
func missingParam(what, id string) *reply {
	return &reply{status: http.StatusBadRequest, body: map[string]any{"error": apiError{Type: "invalid_request_error", Code: "resource_missing", Param: what,
		Message: "No such " + what + ": '" + id + "'"}}}
}

func invalid(param, message string) *reply {
	return &reply{status: http.StatusBadRequest, body: map[string]any{"error": apiError{Type: "invalid_request_error", Code: "parameter_invalid", Param: param, Message: message}}}
}

func (r *reply) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Stripe-Version", APIVersion)
	h.Set("Request-Id", newID("req"))
	if r.retry != "" {
		h.Set("Stripe-Should-Retry", r.retry)
	}
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(r.body) // the client is gone
}

// answer is the first answer to an idempotency key.
type answer struct {
	request [sha256.Size]byte
	reply   *reply // nil while it is worked on
}

// Fault is a failure that the API is told to have.
type Fault struct {
	Path   string // prefix, for example "/v1/payment_intents"
	Times  int    // how many requests fail
	Status int    // 429 is a lock timeout; others are the server's own failure
	After  bool   // the work is done first: the outcome is unknown to the client
	// Delay lets the work be done so much later, when the client has long given up; 0 = it is not.
	Delay time.Duration
}

// late is work whose client has given up.
type late struct {
	at time.Time
	do func()
}

// catchUp does the late work that is due. The caller holds mu.
func (s *Server) catchUp() {
	now := s.now()
	s.late = slices.DeleteFunc(s.late, func(x late) bool {
		due := !x.at.After(now)
		if due {
			x.do()
		}
		return due
	})
}

// Fail makes the next requests that change something fail.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// fault takes a failure that is due for a path. The caller holds mu.
func (s *Server) fault(path string) *Fault {
	for _, f := range s.faults {
		if f.Times > 0 && strings.HasPrefix(path, f.Path) {
			f.Times--
			return f
		}
	}
	return nil
}

func (f *Fault) reply() *reply {
	if f.Status == http.StatusTooManyRequests {
		r := failure(f.Status, "invalid_request_error", "lock_timeout", "This object cannot be accessed right now because another API request or Stripe process is currently accessing it.")
		r.retry = "false" // tests need not wait for the client's own retries, which would get the same answer
		return r
	}
	r := failure(f.Status, "api_error", "", "An unknown error occurred.")
	r.retry = "false"
	return r
}

// handle checks the key, reads the parameters, and answers; a change under an idempotency key happens once.
func (s *Server) handle(fn func(*call) *reply) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := r.ParseForm(); err != nil {
			failure(http.StatusBadRequest, "invalid_request_error", "", "The body cannot be read.").write(w)
			return
		}
		if key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); s.cfg.Key == "" || key != s.cfg.Key {
			failure(http.StatusUnauthorized, "invalid_request_error", "", "Invalid API Key provided.").write(w)
			return
		}
		c := &call{id: r.PathValue("id"), params: r.Form}
		for k, v := range r.Form {
			if strings.HasPrefix(k, "expand[") {
				c.expand = append(c.expand, v...)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.catchUp()
		if r.Method == http.MethodGet {
			s.expire()
			fn(c).write(w)
			return
		}
		s.once(w, r, func() *reply { return s.change(r.URL.Path, c, fn) })
	}
}

func (s *Server) change(path string, c *call, fn func(*call) *reply) *reply {
	do := func() *reply {
		got := fn(c)
		s.save()
		return got
	}
	f := s.fault(path)
	switch {
	case f == nil:
		return do()
	case f.After:
		do()
	case f.Delay > 0:
		s.late = append(s.late, late{at: s.now().Add(f.Delay), do: func() { do() }})
	}
	return f.reply()
}

// once answers by idempotency key. The lock is held throughout, so nothing is ever in progress.
func (s *Server) once(w http.ResponseWriter, r *http.Request, do func() *reply) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		do().write(w)
		return
	}
	request := sha256.Sum256([]byte(r.Method + " " + r.URL.Path + "?" + r.Form.Encode()))
	if was, known := s.keys[key]; known {
		if was.request != request {
			failure(http.StatusBadRequest, "idempotency_error", "", "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key other than '"+key+"' if you meant to execute a different request.").write(w)
			return
		}
		w.Header().Set("Idempotent-Replayed", "true")
		was.reply.write(w)
		return
	}
	got := do()
	if got.status != http.StatusBadRequest && got.status != http.StatusNotFound { // what was refused before it began may be asked again
		s.keys[key] = &answer{request: request, reply: frozen(got)}
	}
	got.write(w)
}

// frozen is a reply as it is now, whatever becomes of the objects in it.
func frozen(r *reply) *reply {
	raw, err := json.Marshal(r.body)
	if err != nil {
		return r
	}
	return &reply{status: r.status, body: json.RawMessage(raw), retry: r.retry}
}

// page is a page of a list, newest first.
func page[T any](c *call, all []*T, id func(*T) string, created func(*T) int64, keep func(*T) bool, show func(*T) any) *reply {
	const most, standard = 100, 10
	limit := c.number("limit")
	if limit <= 0 || limit > most {
		limit = standard
	}
	from := c.number("created[gte]")
	after := c.params.Get("starting_after")
	skipping := after != ""
	out, more := []any{}, false
	for _, x := range slices.Backward(all) {
		if skipping {
			skipping = id(x) != after
			continue
		}
		if created(x) < from || keep != nil && !keep(x) {
			continue
		}
		if int64(len(out)) == limit {
			more = true
			break
		}
		out = append(out, show(x))
	}
	return ok(map[string]any{"object": "list", "data": out, "has_more": more, "url": "/v1/list"})
}

func unix(t time.Time) int64 { return t.Unix() }
