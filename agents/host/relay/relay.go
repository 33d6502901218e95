// Package relay is an agent's data plane: it carries a gateway's request to the engine of a unit on this host and the
// answer back, chunk by chunk as it comes, and counts in the journal what went through.
//
// It owns the loop and the counting; which engines run and may take work is the supervisor's (interface Units), who may
// connect is the listener's (package pki).
//
// Invariants: a refusal happens before the engine sees anything and says why; a caller that leaves aborts the engine's
// request at once; every generation has exactly one journal record, opened before the engine sees it; no Millrace header
// and no credential reaches an engine; no chunk is decoded.
package relay

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"millrace/agents/host/journal"
	"millrace/agents/wire"
	"millrace/internal/ids"
)

// Limits and times towards engines, which listen on loopback.
const (
	maxBodyBytes = 256 << 20 // a 1M-token prompt with images; the gateway's own limit is below
	bufferBytes  = 32 << 10
	dialTimeout  = 2 * time.Second
	idleTimeout  = 3 * time.Second // engines' servers close idle connections after 5 s: never meet one closing
	idleConns    = 256
)

// Units admits attempts.
type Units interface {
	// Enter takes a place at a unit's engine, or says why not with one of wire's reasons.
	Enter(unit ids.ID) (place Place, refused string)
}

// Place is an attempt's hold on a running engine.
type Place interface {
	Address() string   // host:port of the engine's HTTP server
	UsageMark() []byte // engine.Driver.UsageMark
	Progress()         // a chunk has gone through
	// Leave gives the place back, once. broken says that the engine failed: look at it.
	Leave(broken bool)
}

// Relay is the handler of the data plane.
type Relay struct {
	units   Units
	journal *journal.Journal
	rt      http.RoundTripper
	log     *slog.Logger
}

// New makes the handler.
func New(units Units, j *journal.Journal, log *slog.Logger) *Relay {
	return &Relay{units: units, journal: j, rt: loopback(), log: log}
}

// loopback is the transport to engines: deadlines are the caller's, so that a long prefill is not cut here.
func loopback() *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost:   idleConns,
		IdleConnTimeout:       idleTimeout,
		DisableCompression:    true,
		ExpectContinueTimeout: time.Second,
		WriteBufferSize:       bufferBytes,
		ReadBufferSize:        bufferBytes,
	}
}

// ServeHTTP relays one request.
func (p *Relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	unit, path, ok := split(r.URL)
	if !ok {
		refuse(w, http.StatusNotFound, "", "There is nothing here.")
		return
	}
	kind := classify(r.Method, path)
	if kind == notAllowed {
		refuse(w, http.StatusNotFound, "", "An agent does not pass this on to an engine.")
		return
	}
	place, reason := p.units.Enter(unit)
	if reason != "" {
		refuse(w, http.StatusServiceUnavailable, reason, refusals[reason])
		return
	}
	var out outcome
	defer func() { place.Leave(out != fine) }() // also when the connection is aborted below
	var rec *journal.Record
	if kind == generates {
		if rec = p.begin(w, r, unit); rec == nil {
			return
		}
	}
	if out = p.carry(w, r, place, path, rec); out == abort {
		panic(http.ErrAbortHandler) // the caller must see a broken answer, not a short one
	}
}

// outcome says how the engine did.
type outcome uint8

const (
	fine   outcome = iota // also when the caller left
	broken                // it failed, and the caller has been told
	abort                 // it failed in the middle of its answer
)

// begin opens the journal's record. nil means that the request was answered.
func (p *Relay) begin(w http.ResponseWriter, r *http.Request, unit ids.ID) *journal.Record {
	attempt, err := ids.Parse("att", r.Header.Get(wire.HeaderAttempt))
	if err != nil {
		refuse(w, http.StatusBadRequest, "", "A generation needs the header "+wire.HeaderAttempt+".")
		return nil
	}
	kind := r.Header.Get(wire.HeaderKind)
	if kind == "" {
		kind = wire.KindServe
	}
	rec, err := p.journal.Begin(attempt, unit, kind)
	switch {
	case errors.Is(err, journal.ErrBusy):
		refuse(w, http.StatusServiceUnavailable, wire.RefusedBusy, refusals[wire.RefusedBusy])
	case err != nil:
		refuse(w, http.StatusBadRequest, "", "The header "+wire.HeaderKind+" is not one of the kinds.")
	}
	return rec
}

// carry makes the engine's request and relays the answer.
func (p *Relay) carry(w http.ResponseWriter, r *http.Request, place Place, path string, rec *journal.Record) outcome {
	resp, err := p.rt.RoundTrip(upstream(w, r, place.Address(), path))
	if err != nil {
		return notAnswered(w, r, rec, err)
	}
	defer resp.Body.Close()
	header := w.Header()
	for k, v := range resp.Header {
		if !hopByHop[k] {
			header[k] = v
		}
	}
	w.WriteHeader(resp.StatusCode)
	err = pump(w, resp.Body, &meter{mark: place.UsageMark(), record: rec}, place.Progress)
	switch {
	case err == nil && resp.StatusCode < http.StatusInternalServerError:
		end(rec, wire.EndComplete)
		return fine
	case err == nil:
		end(rec, wire.EndEngineFailed)
		return broken
	case r.Context().Err() != nil || errors.Is(err, errWrite):
		end(rec, wire.EndCallerLeft)
		return fine
	}
	end(rec, wire.EndEngineFailed)
	p.log.Warn("an engine broke off its answer", "error", err)
	return abort
}

func end(rec *journal.Record, ending string) {
	if rec != nil {
		rec.End(ending)
	}
}

// notAnswered handles an engine that gave no answer at all.
func notAnswered(w http.ResponseWriter, r *http.Request, rec *journal.Record, err error) outcome {
	if r.Context().Err() != nil {
		end(rec, wire.EndCallerLeft)
		return fine
	}
	end(rec, wire.EndEngineFailed)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		refuse(w, http.StatusServiceUnavailable, wire.RefusedEngine, refusals[wire.RefusedEngine])
	} else {
		refuse(w, http.StatusBadGateway, "", "The engine broke off before it answered.")
	}
	return broken
}

// errWrite marks a failure towards the caller.
var errWrite = errors.New("relay: the caller is gone")

var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

// pump copies until the engine ends its answer (nil), the engine fails, or the caller is gone (errWrite).
func pump(w http.ResponseWriter, body io.Reader, m *meter, progress func()) error {
	buf := buffers.Get().(*[bufferBytes]byte)
	defer buffers.Put(buf)
	flusher, _ := w.(interface{ FlushError() error })
	for {
		n, err := body.Read(buf[:])
		if n > 0 {
			m.scan(buf[:n])
			if _, werr := w.Write(buf[:n]); werr != nil {
				return errWrite
			}
			if flusher != nil {
				if werr := flusher.FlushError(); werr != nil {
					return errWrite
				}
			}
			m.handedOver()
			progress()
		}
		if err != nil {
			if err == io.EOF { // the exact value: a wrapped one is a broken answer
				return nil
			}
			return err
		}
	}
}

// upstream is the engine's request: the caller's, without what is the agent's or the connection's own.
func upstream(w http.ResponseWriter, r *http.Request, address, path string) *http.Request {
	out := &http.Request{
		Method: r.Method, Host: address, ContentLength: r.ContentLength,
		URL:    &url.URL{Scheme: "http", Host: address, Path: path, RawQuery: r.URL.RawQuery},
		Header: make(http.Header, len(r.Header)),
	}
	for k, v := range r.Header {
		if !hopByHop[k] && !ownHeaders[k] {
			out.Header[k] = v
		}
	}
	if r.ContentLength != 0 {
		out.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	}
	return out.WithContext(r.Context())
}
