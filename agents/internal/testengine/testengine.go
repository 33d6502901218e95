// Package testengine is a tiny engine for tests of agents: a real process that speaks enough of vLLM's dialect, started by
// the driver of simulated engines. Only tests import it. A test's binary becomes the engine:
//
//	func TestMain(m *testing.M) {
//		testengine.RunIfAsked()
//		os.Exit(m.Run())
//	}
//
// It owns misbehaviour on request (flags) and nothing else: no cost model, no prefix cache, no tools (serving/engine/sim).
package testengine

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
)

// BlockSize is the number of tokens in its KV blocks.
const BlockSize = 16

// AbortFile is where the engine, in its own folder, notes each request whose caller left.
const AbortFile = "aborted"

// Flags, to be put into engine.Spec.Extra.
const (
	IgnoreTerm = "--ignore-term"     // SIGTERM does nothing
	WithChild  = "--with-child"      // has a child process in its group
	NeverReady = "--never-ready"     // answers 503 for ever
	ExitAtOnce = "--exit-at-once"    // writes a line and ends
	TokenTime  = "--token-time=50ms" // between tokens; replace the value
)

// Desired is a unit with this engine, for a host whose test binary is os.Args[0].
func Desired(unit ids.ID, flags ...string) wire.Desired {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	spec, err := json.Marshal(engine.Spec{Executable: exe, Extra: flags})
	if err != nil {
		panic(err)
	}
	return wire.Desired{Unit: unit, Name: "test", Generation: 1, Engine: string(engine.Sim), Model: "m", Wanted: "serving", Spec: spec}
}

// RunIfAsked turns this process into the engine when it was started as one.
func RunIfAsked() {
	if len(os.Args) > 1 && os.Args[1] == "sim-engine" {
		os.Exit(run(os.Args[2:]))
	}
}

type server struct {
	never     bool
	tokenTime time.Duration
	pubs      []*kvevent.Publisher // by rank
	running   atomic.Int64
	hash      atomic.Uint64
}

func run(args []string) int {
	f := flag.NewFlagSet("sim-engine", flag.ExitOnError)
	port := f.Int("port", 0, "")
	f.String("model", "", "")
	events := f.String("kv-endpoint", "", "")
	replay := f.String("replay-endpoint", "", "")
	ranks := f.Int("ranks", 1, "")
	ignore, child := f.Bool(IgnoreTerm[2:], false, ""), f.Bool(WithChild[2:], false, "")
	never, exit := f.Bool(NeverReady[2:], false, ""), f.Bool(ExitAtOnce[2:], false, "")
	tokenTime := f.Duration("token-time", time.Millisecond, "")
	_ = f.Parse(args)
	fmt.Println("test engine starts on port", *port)
	if *exit {
		fmt.Println("no weights here")
		return 3
	}
	if *child {
		if err := exec.Command("sleep", "300").Start(); err != nil {
			fmt.Println(err)
		}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	s := &server{never: *never, tokenTime: *tokenTime}
	for n := 0; *events != "" && n < *ranks; n++ {
		pub, err := kvevent.NewPublisher(kvevent.PublisherConfig{Endpoint: behind(*events, n), Replay: behind(*replay, n), Topic: "kv-events", Rank: n}, clock.System)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		s.pubs = append(s.pubs, pub)
		go func() { _ = pub.Run(context.Background()) }() // ends with the process
	}
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port), s) }()
	for {
		select {
		case err := <-failed:
			fmt.Println(err)
			return 1
		case <-stop:
			if !*ignore {
				return 0
			}
		}
	}
}

// ServeHTTP answers /metrics and chat completions.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/metrics":
		_, _ = fmt.Fprintf(w, "vllm:num_requests_running %d\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.25\n", s.running.Load())
	case s.never:
		http.Error(w, "loading", http.StatusServiceUnavailable)
	case r.URL.Path == engine.ChatPath:
		s.chat(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *server) chat(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Add(-1)
	var in struct {
		Stream    bool `json:"stream"`
		MaxTokens int  `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if !in.Stream {
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":8,"completion_tokens":1}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for n := 1; n <= in.MaxTokens; n++ {
		select {
		case <-r.Context().Done():
			s.note(r.Header.Get("X-Request-Id"))
			return
		case <-time.After(s.tokenTime):
		}
		_, _ = fmt.Fprintf(w, `data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":8,"completion_tokens":%d}}`+"\n\n", n)
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
	s.store()
}

// behind is the endpoint whose port is n higher: each rank has its own.
func behind(endpoint string, n int) string {
	u, err := url.Parse(endpoint)
	if err != nil || n == 0 {
		return endpoint
	}
	port, _ := strconv.Atoi(u.Port())
	return fmt.Sprintf("tcp://%s:%d", u.Hostname(), port+n)
}

// store publishes one new block, as a finished request does; ranks take turns.
func (s *server) store() {
	if len(s.pubs) == 0 {
		return
	}
	n := s.hash.Add(1)
	tokens := make([]uint32, BlockSize)
	for i := range tokens {
		tokens[i] = uint32(n)
	}
	_ = s.pubs[int(n-1)%len(s.pubs)].Publish([]kvevent.Event{{Kind: kvevent.Stored, Hashes: []kvevent.Hash{{Int: n}}, Tokens: tokens, BlockSize: BlockSize, Group: -1}})
}

// Block is the hash of the n-th block that an engine stores, from 1 on, as a board tells it.
func Block(n uint32) uint64 {
	tokens := make([]uint32, BlockSize)
	for i := range tokens {
		tokens[i] = n
	}
	return kvevent.ChainHashes("", tokens, BlockSize)[0]
}

func (s *server) note(request string) {
	f, err := os.OpenFile(AbortFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = fmt.Fprintln(f, request)
}
