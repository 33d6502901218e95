// Package recipe knows tested combinations: an engine and its version, a model, the hardware it needs, how it is spread
// over GPUs, its flags, and the cost model that was fitted to measurements of it.
//
// It owns the YAML form, its checks, the catalogue that comes with Millrace, the fit of a cost model, and the engine.Spec of
// every process of a unit. It does not own where recipes are kept (serving/recipe/store), where a unit is put (serving/plan)
// nor how it is brought up (serving/fleet).
//
// Words. Pool: the replicas of one role in a unit. Replica: one engine, a group of processes that share a model's weights
// or its batch. Shard: the part of a replica that runs on one host. Floor: the least hardware and toolchain.
//
// Invariants: a recipe never changes once stored (its digest is its identity: another text is another recipe); a recipe
// that Check passes renders a command for every shard that a plan may ask for.
package recipe

// Limits of a recipe.
const (
	MaxBytes    = 256 << 10 // of YAML
	MaxPools    = 4
	MaxReplicas = 128 // of a pool
	MaxGPUs     = 512 // of a replica
)

// Roles of a pool.
const (
	Whole   = "whole" // aggregated: prefill and decode in one engine
	Prefill = "prefill"
	Decode  = "decode"
	Encoder = "encoder"
)

// Recipe is one tested combination.
type Recipe struct {
	Name          string       `yaml:"name" json:"name"`
	Description   string       `yaml:"description,omitempty" json:"description,omitempty"`
	Engine        string       `yaml:"engine" json:"engine"` // engine.Family
	Version       string       `yaml:"version" json:"version"`
	Model         Model        `yaml:"model" json:"model"`
	Hardware      []Floor      `yaml:"hardware" json:"hardware"` // any of them will do
	Pools         []Pool       `yaml:"pools" json:"pools"`
	Transfer      *Transfer    `yaml:"transfer,omitempty" json:"transfer,omitempty"` // between pools; required when there are several
	Speculative   *Speculative `yaml:"speculative,omitempty" json:"speculative,omitempty"`
	Deterministic bool         `yaml:"deterministic,omitempty" json:"deterministic,omitempty"` // the same request gives the same tokens
	Container     string       `yaml:"container,omitempty" json:"container,omitempty"`         // image; "" = installed on the host
	Cost          *Cost        `yaml:"cost,omitempty" json:"cost,omitempty"`
	Golden        []Golden     `yaml:"golden,omitempty" json:"golden,omitempty"`
}

// Model is what is served.
type Model struct {
	Name    string `yaml:"name" json:"name"`       // that the engine serves under
	Path    string `yaml:"path" json:"path"`       // weights: a folder of the host or a name that the engine resolves
	Context int64  `yaml:"context" json:"context"` // tokens
	Family  string `yaml:"family,omitempty" json:"family,omitempty"`
}

// Floor is the least that a host must have. What is empty is not asked for.
type Floor struct {
	Arch      []string          `yaml:"arch" json:"arch"`             // of its GPUs, any of them
	MemoryGiB int               `yaml:"memory_gib" json:"memory_gib"` // of each GPU
	Toolchain map[string]string `yaml:"toolchain,omitempty" json:"toolchain,omitempty"`
}

// Pool is the replicas of one role.
type Pool struct {
	Role         string            `yaml:"role" json:"role"`
	Replicas     int               `yaml:"replicas" json:"replicas"`                 // engines in the pool; 0 is read as 1
	GPUs         int               `yaml:"gpus" json:"gpus"`                         // of each replica
	Domain       int               `yaml:"domain,omitempty" json:"domain,omitempty"` // the least size of the scale-up domain, in GPUs; 0 = that of the replica
	Parallel     Parallel          `yaml:"parallel,omitempty" json:"parallel,omitempty"`
	ExpertTo     []int             `yaml:"expert_to,omitempty" json:"expert_to,omitempty"`           // EP sizes it may shrink to after a fault, largest first
	Slots        int               `yaml:"slots,omitempty" json:"slots,omitempty"`                   // requests at once
	Queue        int               `yaml:"queue,omitempty" json:"queue,omitempty"`                   // requests waiting
	Elastic      int               `yaml:"elastic,omitempty" json:"elastic,omitempty"`               // most data-parallel ranks it may be resized to while it runs; 0 = never
	HostCacheGiB int               `yaml:"host_cache_gib,omitempty" json:"host_cache_gib,omitempty"` // memory of each host for blocks that leave the GPUs
	Flags        []string          `yaml:"flags,omitempty" json:"flags,omitempty"`                   // appended to what the driver makes
	Env          map[string]string `yaml:"env,omitempty" json:"env,omitempty"`
}

// Parallel is how a replica is spread over its GPUs: tensor x pipeline x data of them, the experts over a part of these; 0 is
// as good as 1.
type Parallel struct {
	Tensor   int `yaml:"tensor,omitempty" json:"tensor,omitempty"`
	Pipeline int `yaml:"pipeline,omitempty" json:"pipeline,omitempty"`
	Data     int `yaml:"data,omitempty" json:"data,omitempty"`
	Expert   int `yaml:"expert,omitempty" json:"expert,omitempty"`
}

// Transfer is how a prefill pool hands its cache to a decode pool.
type Transfer struct {
	Backend   string  `yaml:"backend" json:"backend"`                                       // nixl, mooncake, ucx, …: what the engine's driver knows
	Mode      string  `yaml:"mode,omitempty" json:"mode,omitempty"`                         // pull, push, context_first, generation_first
	MinGbps   float64 `yaml:"min_gbps,omitempty" json:"min_gbps,omitempty"`                 // measured between the pools' hosts
	MaxPrompt int64   `yaml:"max_local_prompt,omitempty" json:"max_local_prompt,omitempty"` // tokens that decode may compute itself when no prefill is left; 0 = none
}

// Speculative is a recipe's speculative decoding.
type Speculative struct {
	Method     string  `yaml:"method" json:"method"`
	Draft      int     `yaml:"draft" json:"draft"`                               // tokens ahead
	Acceptance float64 `yaml:"acceptance,omitempty" json:"acceptance,omitempty"` // measured share, 0..1
	Model      string  `yaml:"model,omitempty" json:"model,omitempty"`           // the drafting one
}

// Cost is the fitted cost model: prefill of s uncached tokens takes A0 + A1*s, a decode step B0 + B1*requests + B2*tokens
// in the cache; microseconds.
type Cost struct {
	A0    float64 `yaml:"a0_us" json:"a0_us"`
	A1    float64 `yaml:"a1_us" json:"a1_us"`
	B0    float64 `yaml:"b0_us" json:"b0_us"`
	B1    float64 `yaml:"b1_us" json:"b1_us"`
	B2    float64 `yaml:"b2_us" json:"b2_us"`
	Error float64 `yaml:"error" json:"error"` // mean relative error of the fit, 0..1
	From  string  `yaml:"from" json:"from"`   // where it was measured, or that it is an estimate
}

// Golden is a prompt whose answer is known.
type Golden struct {
	Prompt string `yaml:"prompt" json:"prompt"`
	Tokens int    `yaml:"tokens" json:"tokens"`                     // of the answer that are compared
	Answer string `yaml:"answer,omitempty" json:"answer,omitempty"` // "" = recorded at the first run
}
