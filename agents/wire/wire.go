// Package wire holds the messages between a host's agent and the control side, and between a gateway and an agent. It is
// a leaf: both sides import it and it imports nothing of either, so serving may use it too.
//
// Control is level-triggered: an agent reports what it observes and gets the whole desired state with its generation;
// repeating a message is harmless. Load and KV messages are facts about now; losing one costs routing quality, never money.
package wire

import (
	"encoding/json"
	"time"

	"millrace/internal/ids"
)

// Paths of the hub's TLS listener (agents dial it) and of an agent's data plane (gateways dial it).
const (
	PathJoin    = "/agent/v1/join"    // POST JoinRequest -> JoinResponse; no client certificate yet
	PathRenew   = "/agent/v1/renew"   // POST RenewRequest -> JoinResponse; mTLS, also with a certificate that ended lately
	PathLink    = "/agent/v1/link"    // WebSocket by mTLS that carries the link (package agents/link); what follows goes over it
	PathSync    = "/agent/v1/sync"    // POST SyncRequest -> SyncResponse; long poll up to SyncWait
	PathFacts   = "/agent/v1/facts"   // POST a stream of Fact lines (load, KV)
	PathJournal = "/agent/v1/journal" // POST []Attempt -> 204 once stored
	PathData    = "/agent/v1/data"    // at a gateway: WebSocket by mTLS that carries a data link (package agents/link)
	PathProgram = "/agent/v1/program" // GET ?channel=&platform= -> the agent's program of an Update

	// LogPrefix + unit id, asked over the link by the hub: GET ?bytes= -> the end of the unit's engine log, as text.
	LogPrefix = "/agent/v1/log/"

	// DataPrefix + unit id + the engine's own path reaches an engine through its agent.
	DataPrefix = "/units/"
)

// Headers a gateway sets towards an agent. An agent removes every one before the engine sees the request.
const (
	HeaderAttempt = "Millrace-Attempt" // attempt id: the journal's key
	HeaderKind    = "Millrace-Kind"    // KindServe, KindProbe or KindGolden
)

// HeaderRefused is on a 503 that the agent itself gives before the engine saw anything: another unit may be tried at once.
// Its value is one of the reasons.
const HeaderRefused = "Millrace-Refused"

// Reasons of a refusal.
const (
	RefusedUnknown  = "unknown_unit"   // this host runs no such unit
	RefusedNotReady = "not_ready"      // the engine is starting, or keeps failing
	RefusedDraining = "draining"       // it takes nothing new
	RefusedBusy     = "busy"           // the host's own limit of attempts at once is reached
	RefusedEngine   = "engine_refused" // the engine did not take the connection
)

// Kinds of attempts.
const (
	KindServe  = "serve"
	KindProbe  = "probe"
	KindGolden = "golden"
)

// DataByLink is the Observed.DataURL of a host that listens nowhere: gateways reach it through its link.
const DataByLink = "https://link.invalid"

// Times of the control protocol.
const (
	SyncWait      = 20 * time.Second       // a long poll answers at least this often
	LoadInterval  = 250 * time.Millisecond // how often an agent looks at loads and reports those that moved
	LoadRepeat    = 4                      // looks between two reports of a load that does not move
	HostLostAfter = 10 * time.Second       // without a sync or fact: its units get no new work
	LinkGrace     = 500 * time.Millisecond // a broken link that is not back by then: its units get no new work
)

// Limits of messages.
const (
	MaxKVHashes    = 16 << 10 // block hashes in one KV message, stored and removed together; a larger state comes in parts
	MaxAttempts    = 1000     // records in one journal message
	MaxFactBytes   = 1 << 20  // one line of the facts stream; JSON of MaxKVHashes fits
	MaxSyncBytes   = 4 << 20
	MaxLogBytes    = 64 << 10 // of an engine's log at once
	MaxUnitMessage = 2000     // bytes of UnitObserved.Message
)

// JoinRequest turns a one-time token into an identity.
type JoinRequest struct {
	Token string `json:"token"`
	CSR   []byte `json:"csr"` // PKCS#10, DER
}

// RenewRequest asks for a fresh certificate of the same host.
type RenewRequest struct {
	CSR []byte `json:"csr"`
}

// JoinResponse is the identity: the host's id is in the certificate's URI (spiffe://millrace/host/<id>).
type JoinResponse struct {
	Host ids.ID `json:"host"`
	Name string `json:"name"`
	Cert []byte `json:"cert"` // PEM
	CA   []byte `json:"ca"`   // PEM
}

// SyncRequest is what an agent sees; Generation is the desired state it has applied.
type SyncRequest struct {
	Generation int64    `json:"generation"`
	Observed   Observed `json:"observed"`
	Wait       bool     `json:"wait"` // hold the answer until the generation moves on or SyncWait passes
}

// SyncResponse is the whole desired state; without units when its generation is the one that the agent has.
type SyncResponse struct {
	Generation int64     `json:"generation"`
	Desired    []Desired `json:"desired"`
	NowMS      int64     `json:"now_ms,omitempty"` // the control side's clock as it answers
	Peers      []Peer    `json:"peers,omitempty"`  // hosts to measure the way to
	Update     *Update   `json:"update,omitempty"` // nil = the agent is as it should be, or follows no channel
	// Gateways are those to dial data links to, told to agents that nobody can dial.
	Gateways []Gateway `json:"gateways,omitempty"`
}

// Gateway is a gateway process that takes data links, and the payload of the bus subject fleet.gateways: every
// GatewayEvery as long as it does.
type Gateway struct {
	Name string `json:"name"` // in its certificate
	URL  string `json:"url"`  // https://host:port
}

// GatewayEvery is how often a gateway says that it takes data links, GatewayGone how long its word holds.
const (
	GatewayEvery = 2 * time.Second
	GatewayGone  = 5 * GatewayEvery
)

// Observed is a host as its agent sees it.
type Observed struct {
	Inventory
	AgentVersion string         `json:"agent_version"`
	DataURL      string         `json:"data_url"`  // https://address:port of the data plane
	Simulated    bool           `json:"simulated"` // inventory from a file, or engines that are simulated
	Units        []UnitObserved `json:"units"`
	Problems     []Problem      `json:"problems,omitempty"`
	Links        []PeerLink     `json:"links,omitempty"`
	ClockSkewMS  int64          `json:"clock_skew_ms,omitempty"` // the host's clock less the control side's
	ProbeAddress string         `json:"probe_address,omitempty"` // host:port in the fabric where peers measure the way to it
	Channel      string         `json:"channel,omitempty"`       // of releases that the agent follows; "" = it is updated by hand
	Platform     string         `json:"platform,omitempty"`      // linux/amd64
	UpdateError  string         `json:"update_error,omitempty"`  // why the last update was taken back
	// JournalDropped counts attempt records that were lost because the journal's disk limit was reached.
	JournalDropped int64 `json:"journal_dropped,omitempty"`
}

// Desired is one engine the host should run.
type Desired struct {
	Unit       ids.ID          `json:"unit"`
	Name       string          `json:"name"`
	Generation int64           `json:"generation"`
	Engine     string          `json:"engine"` // engine.Family
	Model      string          `json:"model"`  // the name the engine serves under
	Wanted     string          `json:"wanted"` // serving, draining, stopped
	Spec       json.RawMessage `json:"spec"`   // engine.Spec
}

// Unit states.
const (
	StateStarting = "starting"
	StateReady    = "ready"    // proved by a real generation
	StateDraining = "draining" // finishes what runs, takes nothing new
	StateStopped  = "stopped"
	StateFaulted  = "faulted" // the engine keeps failing; Message says why
	StateUnknown  = "unknown" // said by the hub alone: the host's link is gone
)

// UnitObserved is one engine as its agent sees it.
type UnitObserved struct {
	Unit       ids.ID `json:"unit"`
	Generation int64  `json:"generation"`
	State      string `json:"state"`
	Message    string `json:"message,omitempty"`
	PID        int    `json:"pid,omitempty"`
	Restarts   int    `json:"restarts"`
	StartedMS  int64  `json:"started_ms,omitempty"`
}

// Fact is one line of the facts stream, and the payload of the bus subjects fleet.load and fleet.kv. Exactly one is set.
type Fact struct {
	Load *Load `json:"load,omitempty"`
	KV   *KV   `json:"kv,omitempty"`
}

// Load is a unit's load now. State changes are sent at once, other changes every LoadInterval, and what stays the same
// every LoadRepeat of those, so that it is never taken for stale.
type Load struct {
	Unit         ids.ID     `json:"unit"`
	Engine       ids.ID     `json:"engine"` // incarnation of the engine process: a new one has an empty cache
	State        string     `json:"state"`
	Running      int        `json:"running"`
	Waiting      int        `json:"waiting"`
	QueuedTokens int64      `json:"queued_tokens"`
	KVUsage      float64    `json:"kv_usage"` // 0..1
	CacheQueries int64      `json:"cache_queries"`
	CacheHits    int64      `json:"cache_hits"` // both in tokens, since the engine started
	AtMS         int64      `json:"at_ms"`
	Ranks        []RankLoad `json:"ranks,omitempty"` // by data-parallel rank, when there are several; the rest is their sum
}

// RankLoad is the load of one data-parallel rank.
type RankLoad struct {
	Rank         int     `json:"rank"`
	Running      int     `json:"running"`
	Waiting      int     `json:"waiting"`
	QueuedTokens int64   `json:"queued_tokens,omitempty"`
	KVUsage      float64 `json:"kv_usage"`
}

// KV tells which prefix blocks a unit's engine holds: 64-bit chain hashes (kvevent.ChainHashes), a rank's as kvevent.OfRank
// gives them, so that ranks never mix; never token ids. A state above MaxKVHashes comes as a message with Reset and further
// ones with Stored.
type KV struct {
	Unit      ids.ID   `json:"unit"`
	Engine    ids.ID   `json:"engine"`
	Head      ids.ID   `json:"head,omitzero"`   // the unit whose ranks these are, of a replica over several hosts: requests go there
	Seq       int64    `json:"seq"`             // +1 per message of an incarnation; a gap asks for Reset
	Reset     bool     `json:"reset,omitempty"` // forget everything of the unit first
	BlockSize int      `json:"block_size"`
	Stored    []uint64 `json:"stored,omitempty"`
	Removed   []uint64 `json:"removed,omitempty"`
}

// Attempt is one journal record.
type Attempt struct {
	ID         ids.ID `json:"id"`
	Unit       ids.ID `json:"unit"`
	Kind       string `json:"kind"`
	Prompt     int64  `json:"prompt"`
	Cached     int64  `json:"cached"`
	Generated  int64  `json:"generated"`
	HandedOver int64  `json:"handed_over"`
	Ending     string `json:"ending"`
	StartedMS  int64  `json:"started_ms"`
	EndedMS    int64  `json:"ended_ms,omitempty"`
}

// Endings of an attempt.
const (
	EndComplete     = "complete"
	EndCallerLeft   = "caller_left"
	EndEngineFailed = "engine_failed"
	EndAgentDied    = "agent_died" // closed from the mapped counters after a restart
	EndOpen         = "open"       // still running: a snapshot that a later record replaces
)
