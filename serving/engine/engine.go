// Package engine says what Millrace needs of an inference engine, and has one driver per engine: the request body it is
// given, how its usage is read, how it is started, proven ready and asked for its load, and the token ids of a prompt.
//
// It owns the differences between engines and nothing else: it keeps no connections, holds no state, chooses no engine
// and charges nothing. It runs on GPU hosts as well as in the gateway, so it imports leaves only.
//
// Invariants: a body made by PrepareChat is always streamed with usage and carries no field that only Millrace may set;
// a Report's classes are disjoint and possible, or there is an error instead of a report.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/fault"
	"millrace/internal/usage"
)

// Family names an engine's wire dialect; it is what a catalogue row or an --attach flag says.
type Family string

// The families.
const (
	VLLM      Family = "vllm"
	SGLang    Family = "sglang"
	TRTLLM    Family = "trtllm"
	Sim       Family = "sim"
	LlamaCpp  Family = "llamacpp"
	DeepInfer Family = "deepinfer"
	OpenAI    Family = "openai" // any OpenAI-compatible server or provider; attached only, never supervised
)

// ChatPath is where every family takes Chat Completions, relative to an engine's base URL.
const ChatPath = "/v1/chat/completions"

// CompletionPath is where every family takes requests for text.
const CompletionPath = "/v1/completions"

// EmbeddingPath is where engines that run an embedding model take texts.
const EmbeddingPath = "/v1/embeddings"

// ErrUnsupported says that the engine cannot do what was asked; the caller does without.
var ErrUnsupported = errors.New("engine: not supported by this engine")

// Caps says what an engine can do.
type Caps struct {
	CacheSalt          bool   // keeps prefixes of different salts apart
	ContinuousUsage    bool   // usage on every chunk, so an aborted stream is still counted
	CachedOnEveryChunk bool   // the cached share is on every chunk too, not on the last alone
	KVEvents           bool   // publishes stored and removed blocks
	Tokens             bool   // tells a prompt's token ids
	Supervised         bool   // Command works: an agent can run it
	Rank               bool   // run by Command, it takes requests of a lower rank first
	Prefill            bool   // goes on with a last message of the assistant's: by continue_final_message, or by itself
	Cancel             bool   // has a verb that ends one request
	Drain              bool   // has a verb for it; else SIGTERM says it
	Sleep              bool   // gives its GPU memory back and takes it again
	LoRA               bool   // loads and unloads adapters while it runs
	Grow, Shrink       bool   // can be resized that way while it runs
	SwitchRole         bool   // prefill becomes decode and the other way round, when idle
	AnyRole            bool   // takes either role with each request: there is nothing to switch
	ResetPrefix        bool   // forgets its prefixes when told
	RankHeader         string // by which a request names the data-parallel rank that shall compute it; "" = the engine chooses
	Polled             bool   // its KV events are polled (PollEvents), by one reader
	ChatOnly           bool   // takes messages only: a prompt of text has no salt, so tenants would read each other's cache
}

// ChatParams is what Millrace decides about one request to one engine.
type ChatParams struct {
	Model     string // the name the engine knows
	Salt      string // cache_salt; "" = none; ignored by engines without CacheSalt
	MaxTokens int64  // > 0: the cap in tokens to set when the client gave none or more
	RequestID string // the engine's logs and ids carry it; "" = none
	Plain     bool   // the body asks for no generation: nothing is added but names
	Rank      int    // place in the engine's queue, lower ones first; 0 = everybody's. Only for engines that Command runs.
}

// Report is what an engine said about a request's usage.
type Report struct {
	Vector      usage.Vector    // disjoint classes; Requests is 1
	Raw         json.RawMessage // the engine's own usage object, a copy
	CachedKnown bool            // false: the engine did not say how much was cached; all of the prompt is in Input
}

// Load is an engine's load as it reports it: a moment's view, for display and as a slow correction of own bookings.
type Load struct {
	Running       int        // requests being computed
	Waiting       int        // requests in the engine's queue
	KVUsage       float64    // 0..1: share of the KV cache in use
	QueuedTokens  int64      // prompt tokens of waiting requests; 0 when the engine does not say
	PrefixHits    int64      // prompt tokens found in the prefix cache since the engine's start
	PrefixQueries int64      // prompt tokens looked up since the engine's start
	Ranks         []RankLoad // by rank, when there are several; the rest is their sum
}

// RankLoad is the load of one data-parallel rank.
type RankLoad struct {
	Rank         int
	Running      int
	Waiting      int
	KVUsage      float64 // 0..1
	QueuedTokens int64
}

// maxRanks bounds the ranks of an engine that are told apart.
const maxRanks = 512

// rankLoads gathers loads by the label that names a rank.
type rankLoads map[string]*RankLoad

// of finds a rank's load; what bears no number is rank 0, which is all of an engine without ranks.
func (r rankLoads) of(label string) *RankLoad {
	l := r[label]
	if l == nil {
		l = &RankLoad{}
		if n, err := strconv.Atoi(label); err == nil && n >= 0 && len(r) < maxRanks {
			l.Rank = n
		}
		r[label] = l
	}
	return l
}

// join adds the ranks up; their cache usage is the mean.
func (r rankLoads) join(l *Load) {
	for _, one := range r {
		l.Running += one.Running
		l.Waiting += one.Waiting
		l.QueuedTokens += one.QueuedTokens
		l.KVUsage += one.KVUsage / float64(len(r))
		if len(r) > 1 {
			l.Ranks = append(l.Ranks, *one)
		}
	}
	slices.SortFunc(l.Ranks, func(a, b RankLoad) int { return a.Rank - b.Rank })
}

// Driver speaks one family's dialect. Drivers have no state: every method may be called from many goroutines. A base is
// an engine's root URL as CleanBase makes it; deadlines come by context, credentials by the HTTP client's transport.
type Driver interface {
	Family() Family
	// Label is the engine's name for people; a simulated engine's says so.
	Label() string
	Caps() Caps

	// PrepareChat appends to dst the upstream body for a Chat Completions request. body must be valid JSON; what is no
	// object, or has an impossible max_tokens, is a fault of kind Invalid. Members it does not know stay byte for byte.
	PrepareChat(dst, body []byte, p ChatParams) ([]byte, error)
	// Drops reports whether PrepareChat leaves a member out that clients may send: those are named to the client.
	Drops(member string) bool
	// UsageMark is the byte string whose presence in an SSE data line says that the line carries usage.
	UsageMark() []byte
	// Usage reads a chunk with UsageMark, with or without its "data:". Impossible usage is an error, never a report.
	Usage(chunk []byte) (Report, error)

	// Command says how to start the engine, or ErrUnsupported.
	Command(spec Spec) (Command, error)
	// Ready generates one token: only that proves that an engine serves. Its error says what the engine answered.
	Ready(ctx context.Context, c *http.Client, base, model string) error
	// Alive is the path that answers cheaply as long as the server lives; that alone does not prove that it serves.
	Alive() string
	// Load asks the engine for its load, or ErrUnsupported.
	Load(ctx context.Context, c *http.Client, base string) (Load, error)
	// Tokens gives the prompt's token ids as the engine's template makes them; chatBody names the engine's model, as
	// PrepareChat wrote it. ErrUnsupported where the engine does not tell.
	Tokens(ctx context.Context, c *http.Client, base string, chatBody []byte) ([]uint32, error)
	Verbs

	// BlockSize is the number of tokens in a KV block by default, 0 when unknown. KV events say the true one.
	BlockSize() int
}

var drivers = []Driver{vllm{}, sglang{}, trtllm{}, deepInfer{}, simulated{}, llamaCpp{}, openAI{}}

// Lookup finds a family's driver. An unknown name is a fault of kind Invalid that lists the known ones.
func Lookup(f Family) (Driver, error) {
	for _, d := range drivers {
		if d.Family() == f {
			return d, nil
		}
	}
	return nil, fault.New(fault.Invalid, "There is no engine family %q. Known families: %v.", f, Families())
}

// Families lists the known families.
func Families() []Family {
	all := make([]Family, len(drivers))
	for i, d := range drivers {
		all[i] = d.Family()
	}
	return all
}

// CleanBase turns what a person gives as an engine's address into its root URL: http or https, no query, without a
// trailing slash or /v1.
func CleanBase(raw string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fault.New(fault.Invalid, "%q is not an engine's address: give a URL such as http://10.0.0.5:8000.", raw)
	}
	if !validPort(u) {
		return "", fault.New(fault.Invalid, "%q is not an engine's address: a port is a number from 1 to 65535.", raw)
	}
	path := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	return fmt.Sprintf("%s://%s%s", u.Scheme, u.Host, strings.TrimRight(path, "/")), nil
}

// validPort takes no port for the scheme's own; a colon alone is a port that was forgotten.
func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}
