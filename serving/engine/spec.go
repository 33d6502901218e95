package engine

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Roles of an engine in its unit.
const (
	Whole   = "whole" // prefill and decode in one
	Prefill = "prefill"
	Decode  = "decode"
	Encoder = "encoder"
)

// Spec is a supervised engine to be started on this host. Placement fills in where it is and who its peers are
// (recipe.Render), the agent what is this host's alone: loopback ports, folders, its own program.
type Spec struct {
	Executable string   // path of the program; "" = the family's default name or place
	Model      string   // the name it is to serve under
	ModelPath  string   // weights; the simulated engine needs none
	Port       int      // HTTP, on loopback only
	KVPort     int      // loopback port the agent binds for KV events of rank 0 and the engine dials; further ranks follow; 0 = no events
	ReplayPort int      // loopback port where rank 0 answers replay requests; further ranks follow; 0 = none
	Context    int64    // tokens of prompt and answer together; 0 = the engine's default
	Slots      int      // most requests at once; 0 = the engine's default
	Queue      int      // most requests waiting; 0 = the engine's default
	Parallel   Parallel // over how many GPUs, and how
	HostCache  int64    // bytes of host memory for blocks that leave the GPU; 0 = none
	Extra      []string // further arguments, appended last
	DataDir    string   // the engine's own folder: caches, scripts, a Python environment

	Role          string            `json:",omitempty"` // "" = Whole
	Devices       []int             `json:",omitempty"` // GPUs of this host that it may use; empty = all
	Ascend        bool              `json:",omitempty"` // these are Ascend NPUs
	Nodes         Nodes             `json:",omitzero"`  // of a replica over several hosts
	Address       string            `json:",omitempty"` // of this host in the fabric, where the unit's peers reach it; "" = they are on this host
	Interface     string            `json:",omitempty"` // the network interface that has it
	RDMA          []string          `json:",omitempty"` // devices that transfers use, such as mlx5_0
	Head          string            `json:",omitempty"` // unit of the replica's rank 0, which answers for this one
	Transfer      *Transfer         `json:",omitempty"` // nil = it hands no cache over
	Vision        bool              `json:",omitempty"` // the unit has encoders: this engine takes images that were encoded
	Encoders      []string          `json:",omitempty"` // their root URLs, for engines that ask them
	Speculative   *Speculative      `json:",omitempty"`
	Deterministic bool              `json:",omitempty"` // the same request gives the same tokens
	LoRA          *LoRA             `json:",omitempty"` // nil = no adapters
	Elastic       int               `json:",omitempty"` // most data-parallel ranks that it may be resized to; 0 = its size is fixed
	Sleep         bool              `json:",omitempty"` // it can give its GPU memory back and take it again
	Drain         int               `json:",omitempty"` // seconds that running requests may take after SIGTERM; 0 = the engine's way
	Env           map[string]string `json:",omitempty"` // set last
	Container     string            `json:",omitempty"` // image that the agent runs it in; "" = a program of the host
	Agent         string            `json:",omitempty"` // the agent's own program, for engines that need an adapter
}

// Parallel is how a replica is spread over GPUs: tensor x pipeline x data of them, the experts over a part of these; 0 is
// as good as 1.
type Parallel struct {
	Tensor   int // GPUs that share each layer
	Pipeline int // groups that hold successive layers
	Data     int // replicas of the attention layers
	Expert   int // GPUs that share the experts
}

func (p Parallel) tensor() int   { return max(p.Tensor, 1) }
func (p Parallel) pipeline() int { return max(p.Pipeline, 1) }
func (p Parallel) data() int     { return max(p.Data, 1) }

// GPUs is how many the replica takes, on all its hosts.
func (p Parallel) GPUs() int { return p.tensor() * p.pipeline() * p.data() }

// Nodes says which part of a replica over several hosts this one is. The zero value is a replica on one host.
type Nodes struct {
	Count  int    `json:",omitempty"` // hosts
	Rank   int    `json:",omitempty"` // of this one; only 0 answers HTTP
	Master string `json:",omitempty"` // address of rank 0 in the fabric
	Port   int    `json:",omitempty"` // where rank 0 gathers the others; the next one is the engine's too
}

func (n Nodes) many() bool { return n.Count > 1 }

// Transfer is how an engine hands its cache to a peer, or takes it.
type Transfer struct {
	Backend string // nixl, mooncake, ucx, …
	Mode    string `json:",omitempty"` // pull, push, context_first, generation_first
	Port    int    // first port in the fabric: side channel of rank 0, or the bootstrap server
	Engine  string `json:",omitempty"` // id that this engine has for its peers; "" = it makes one up
	Apart   bool   `json:",omitempty"` // prefill and decode are in different scale-up domains
	Buffer  string `json:",omitempty"` // where blocks wait for transfer: cpu; "" = the engine's way
	Switch  bool   `json:",omitempty"` // prefill may become decode, and the other way round
}

// Speculative is speculative decoding.
type Speculative struct {
	Method string // nextn, mtp, eagle, eagle3, ngram
	Draft  int    // tokens ahead
	Model  string `json:",omitempty"` // the drafting one
}

// LoRA lets an engine serve adapters.
type LoRA struct {
	Max      int       // adapters at once
	Rank     int       `json:",omitempty"` // the largest rank; 0 = the engine's default
	Adapters []Adapter `json:",omitempty"` // loaded from the start
}

// Adapter is a LoRA adapter.
type Adapter struct{ Name, Path string }

// Command is how to start an engine: write Files, then execute Path with Args and Env added to the agent's environment.
type Command struct {
	Path  string
	Args  []string // without the program's name
	Env   []string // KEY=value
	Files []File
	Host  string // where its HTTP listens; "" = loopback
}

// File is something a command needs on disk.
type File struct {
	Path string
	Data []byte
	Mode fs.FileMode
}

// Silent reports whether the engine answers no HTTP: rank 0 of its replica speaks for it.
func (s *Spec) Silent() bool { return s.Nodes.many() && s.Nodes.Rank > 0 }

// Ranks gives the data-parallel ranks that this host runs: the first and how many. One host has them all; several share
// them evenly, or none is whole on a host and rank 0's host speaks for all.
func (s *Spec) Ranks() (first, count int) {
	n := s.Parallel.data()
	if !s.Nodes.many() || n%s.Nodes.Count != 0 {
		return 0, n
	}
	local := n / s.Nodes.Count
	return s.Nodes.Rank * local, local
}

// PortsPerShard is how many fabric ports, one after another, placement keeps for each engine on a host.
const PortsPerShard = 32

// Ports within those of a shard: peers of a transfer need the first, so what depends on the engine's size comes last.
const (
	portBootstrap = 0 // of transfers
	portMaster    = 1 // and 2: gathering a replica's hosts
	portEncoder   = 3
	portSide      = 4 // side channels, one for each rank of data and tensor parallelism
)

// TransferPort is where peers of a transfer reach an engine whose shard's ports begin at base.
func TransferPort(f Family, backend string, base int) int {
	if f == VLLM && backend == "nixl" {
		return base + portSide
	}
	return base + portBootstrap
}

// MasterPort is where rank 0 gathers a replica's hosts.
func MasterPort(base int) int { return base + portMaster }

// check looks for what every supervised engine needs.
func (s *Spec) check(f Family, weights bool) error {
	switch {
	case !weights || s.Model == "" || s.Port == 0:
		return fmt.Errorf("engine: %s needs a model, its path and a port: model %q, path %q, port %d", f, s.Model, s.ModelPath, s.Port) // not its environment, which may hold secrets
	case s.Nodes.many() && (s.Nodes.Master == "" || s.Nodes.Port == 0 || s.Nodes.Rank < 0 || s.Nodes.Rank >= s.Nodes.Count):
		return fmt.Errorf("engine: %s over %d hosts needs its rank and where rank 0 is: %+v", f, s.Nodes.Count, s.Nodes)
	case (s.Role == Prefill || s.Role == Decode) && s.Transfer == nil:
		return fmt.Errorf("engine: %s for %s needs a way to hand its cache over", f, s.Role)
	}
	return nil
}

// errCannot says what an engine has no way to do, as ErrUnsupported.
func errCannot(f Family, what string) error {
	return fmt.Errorf("%w: %s %s", ErrUnsupported, f, what)
}

// processes is how many of the engine's processes, one a GPU, share this host's memory.
func (s *Spec) processes() int64 { return int64(max(s.Parallel.GPUs()/max(s.Nodes.Count, 1), 1)) }

// hands reports whether the engine itself gives or takes a cache.
func (s *Spec) hands() bool { return s.Transfer != nil && s.Role != Encoder }

// environment appends what is the same for all engines: which GPUs it sees, its address in the fabric, and the recipe's own
// variables, which come last and so hold.
func (s *Spec) environment(env ...string) []string {
	if len(s.Devices) > 0 {
		name := "CUDA_VISIBLE_DEVICES="
		if s.Ascend {
			name = "ASCEND_RT_VISIBLE_DEVICES="
		}
		env = append(env, name+joinInts(s.Devices))
	}
	if s.Interface != "" && (s.Nodes.many() || s.hands()) {
		env = append(env, "NCCL_SOCKET_IFNAME="+s.Interface, "GLOO_SOCKET_IFNAME="+s.Interface)
	}
	if t := s.Transfer; s.hands() && (t.Backend == "nixl" || t.Backend == "ucx") {
		if len(s.RDMA) > 0 {
			env = append(env, "UCX_NET_DEVICES="+strings.Join(s.RDMA, ":1,")+":1")
		}
		if t.Apart {
			env = append(env, "UCX_CUDA_IPC_ENABLE_MNNVL=n") // else UCX tries NVLink where there is none
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, k+"="+s.Env[k])
	}
	return env
}

func joinInts(all []int) string {
	var b strings.Builder
	for i, n := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// flag appends a flag with a number, nothing for 0.
func flag(args []string, name string, n int64) []string {
	if n <= 0 {
		return args
	}
	return append(args, name, strconv.FormatInt(n, 10))
}
