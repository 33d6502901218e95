package admin

import (
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// Model is a public model in the list.
type Model struct {
	ID        ids.ID
	Name      string
	Units     int64 // that serve it
	Simulated bool
	Priced    bool // a version is in force; without one the model is not offered
	Prices    usage.Prices
	Since     time.Time
	Next      time.Time // when a published change comes into force; zero = none
}

// ModelDetail is a model with all its price versions, newest first.
type ModelDetail struct {
	Model
	Versions []PriceVersion
}

// PriceVersion is immutable once published.
type PriceVersion struct {
	ID        ids.ID
	Prices    usage.Prices
	Terms     ui.PriceTerms
	Effective time.Time
	Published time.Time
	By        string
	Note      string
}

// NewPrice is a version to publish.
type NewPrice struct {
	Model     ids.ID
	Prices    usage.Prices
	Terms     ui.PriceTerms
	Effective time.Time // zero = now
	Note      string
	Confirm   string // the model's name, typed by a person who was told what looks odd about the prices
}

// PricePreview is what the newest traffic would have cost under a price.
type PricePreview struct {
	From, To  time.Time // at most the last 30 days
	Shortened bool      // there was too much traffic to price all 30 days
	Customers []PreviewLine
	Others    PreviewLine // all further ones
	Total     PreviewLine
	Cost      *money.Nano // of serving the model over the same time; nil = not known
	Doubts    []string    // what the price is to be confirmed for, in sentences
}

// PreviewLine is one customer's traffic.
type PreviewLine struct {
	Org           ids.ID
	Name          string
	Customers     int
	Requests      int64
	Before, After money.Nano
}

// Host is a machine that runs the agent.
type Host struct {
	ID       ids.ID
	Name     string
	Group    string // hosts of one group are drawn together: rack, region or domain
	State    HostState
	LastSeen time.Time
	Joined   time.Time
	Agent    string // version
	Address  string // may be empty: the agent dials out
	CPU      string // "AMD EPYC 9654, 96 cores"
	Memory   int64  // bytes
	GPUs     []GPU
	// Simulated says that its engines are simulated, or its inventory came from a file.
	Simulated bool
	Units     []string // names of units on it
	Problems  []Problem
	NICs      []NIC
	Toolchain []string // "cuda 13.0"
	Fabric    []FabricLink
	Note      string // why it is not well; may be empty
}

// Problem is something wrong with a host now.
type Problem struct {
	Subject string // gpu:3, nic:eth0, host
	Text    string
	Fatal   bool // its subject is not used
	Since   time.Time
}

// NIC is a network interface.
type NIC struct {
	Name string
	Gbps int // 0 = unknown
	RDMA string
	Up   bool
}

// FabricLink is the measured way to another host.
type FabricLink struct {
	Peer string
	Gbps float64
	RTT  time.Duration
	At   time.Time
}

// HostState is how a host is.
type HostState string

// The states.
const (
	HostConnected HostState = "connected"
	HostDraining  HostState = "draining"
	HostLost      HostState = "lost"
)

func (s HostState) tone() ui.Tone {
	switch s {
	case HostConnected:
		return ui.Good
	case HostDraining:
		return ui.Warn
	}
	return ui.Bad
}

// GPU is one accelerator.
type GPU struct {
	Index int
	Name  string // "NVIDIA H200"
	State ui.GPUState
	Unit  string // may be empty
}

// Unit is the smallest thing that serves.
type Unit struct {
	ID        ids.ID
	Name      string
	Engine    string // "vllm 0.32", "simulated vllm"
	Simulated bool
	Model     string // public name
	Release   string // may be empty for attached engines
	Hosts     []string
	Attached  string // URL of an attached engine; empty for our own
	State     UnitState
	Since     time.Time // of the state
	Note      string    // why it is not serving; may be empty
	Running   int64     // requests in the batch
	Waiting   int64     // requests queued
	KVUsed    int64     // per mille of the KV cache
	Prompt    int64     // prompt tokens of the last 5 minutes
	Cached    int64     // of them from the prefix cache
	FirstTok  ui.Quantiles
	Errors    int64 // of the last 5 minutes
	Requests  int64 // of the last 5 minutes
}

// UnitState is how a unit is.
type UnitState string

// The states.
const (
	UnitStarting UnitState = "starting"
	UnitServing  UnitState = "serving"
	UnitDraining UnitState = "draining"
	UnitFailed   UnitState = "failed"
	UnitStopped  UnitState = "stopped"
)

func (s UnitState) tone() ui.Tone {
	switch s {
	case UnitServing:
		return ui.Good
	case UnitStarting:
		return ui.Info
	case UnitDraining:
		return ui.Warn
	case UnitFailed:
		return ui.Bad
	}
	return ui.Quiet
}

// Join is what a new host needs, shown once.
type Join struct {
	Command string // whole command line with the token
	Expires time.Time
}

// Attachment is an engine someone already runs.
type Attachment struct {
	Name       string // public model name
	URL        string
	Engine     string // an engine.Family
	ModelThere string // the engine's own model name; empty = the same
	Key        string // upstream key; empty = none
}
