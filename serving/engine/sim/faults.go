package sim

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Faults is what goes wrong with the next requests. Counts of tokens are of the whole request; 0 is off.
type Faults struct {
	FailBeforeFirst  int  `json:"fail_before_first,omitempty"`  // HTTP status instead of an answer
	SlowFirstMS      int  `json:"slow_first_ms,omitempty"`      // wait before the first token
	DieAfterTokens   int  `json:"die_after_tokens,omitempty"`   // the stream ends without its end
	ResetAfterTokens int  `json:"reset_after_tokens,omitempty"` // the connection is reset
	StallAfterTokens int  `json:"stall_after_tokens,omitempty"` // silence until the client leaves
	ErrorInStream    int  `json:"error_in_stream,omitempty"`    // after so many tokens an error object, then [DONE]
	GarbageChunk     int  `json:"garbage_chunk,omitempty"`      // after so many tokens a data line that is no JSON
	NoUsage          bool `json:"no_usage,omitempty"`           // usage is never sent
	AbsurdUsage      bool `json:"absurd_usage,omitempty"`       // usage that cannot be
	Crash            bool `json:"crash,omitempty"`              // the process exits when the next request comes
	CrashAfterTokens int  `json:"crash_after_tokens,omitempty"` // the process exits in mid-stream
	ResetFirst       bool `json:"reset_first,omitempty"`        // the connection is reset before an answer
	Hang             bool `json:"hang,omitempty"`               // no answer until the client leaves
	EmptyAnswer      bool `json:"empty_answer,omitempty"`       // status 200 and nothing
	NoParams         bool `json:"no_params,omitempty"`          // a prefill tells nothing of where its cache is
	TransferFails    bool `json:"transfer_fails,omitempty"`     // what a decode engine fetches does not come whole
	TransferMS       int  `json:"transfer_ms,omitempty"`        // how long a prefill engine's transfers take, also those of requests before
	Times            int  `json:"times,omitempty"`              // how many requests are hit; 0 = all until it is changed
	StreamsOnly      bool `json:"streams_only,omitempty"`       // whole answers, such as readiness probes, are spared
}

// faultBox holds the faults that are set.
type faultBox struct {
	mu   sync.Mutex
	set  Faults
	left int // requests still to be hit when set.Times > 0
}

// take gives the faults for one request.
func (b *faultBox) take(streamed bool) Faults {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set.StreamsOnly && !streamed {
		return Faults{}
	}
	f := b.set
	if f.Times > 0 {
		if b.left--; b.left <= 0 {
			b.set = Faults{}
		}
	}
	return f
}

// transferMS is how long a transfer takes now.
func (b *faultBox) transferMS() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set.TransferMS
}

func (b *faultBox) put(f Faults) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set, b.left = f, f.Times
}

// serveFaults sets (POST) and shows (GET) the faults.
func (e *Engine) serveFaults(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		var f Faults
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&f); err != nil {
			e.writeError(w, invalid("body", "These are no faults: %v", err))
			return
		}
		e.faults.put(f)
	}
	e.faults.mu.Lock()
	f := e.faults.set
	e.faults.mu.Unlock()
	writeJSON(w, http.StatusOK, f)
}

// errCut says that the connection is to be broken off.
var errCut = errors.New("sim: broken off by a fault")

// strike lets a fault happen that is due when n tokens have been sent. write sends bytes of the stream. It returns errCut
// when the connection must end, nil otherwise.
func (e *Engine) strike(w http.ResponseWriter, r *http.Request, f *Faults, n int, write func(string) error) error {
	switch n {
	case f.CrashAfterTokens:
		e.exit(crashCode)
	case f.DieAfterTokens:
		return errCut
	case f.ResetAfterTokens:
		reset(w)
		return errCut
	case f.StallAfterTokens:
		<-r.Context().Done()
		return errCut
	case f.GarbageChunk:
		return write("data: {\"choices\":[{\"index\":0,\"delta\":{\"cont\xff\n\n")
	case f.ErrorInStream:
		if err := write(`data: {"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}` + "\n\ndata: [DONE]\n\n"); err != nil {
			return err
		}
		return errDone
	}
	return nil
}

// errDone says that a fault has ended the answer in good order.
var errDone = errors.New("sim: ended by a fault")

// crashCode is the exit status of a crash on demand.
const crashCode = 70

// due is the least number of tokens, above n, at which a fault strikes; 0 = none.
func (f *Faults) due(n int) (least int) {
	for _, at := range [...]int{f.CrashAfterTokens, f.DieAfterTokens, f.ResetAfterTokens, f.StallAfterTokens, f.GarbageChunk, f.ErrorInStream} {
		if at > n && (least == 0 || at < least) {
			least = at
		}
	}
	return least
}

// reset closes the connection so that the client gets RST instead of an end.
func reset(w http.ResponseWriter) {
	h, ok := w.(http.Hijacker)
	if !ok {
		return
	}
	c, _, err := h.Hijack()
	if err != nil {
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// slow waits before the first token; false when the client left.
func (f *Faults) slow(r *http.Request) bool {
	if f.SlowFirstMS <= 0 {
		return true
	}
	t := time.NewTimer(time.Duration(f.SlowFirstMS) * time.Millisecond)
	defer t.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-t.C:
		return true
	}
}
