// Package inventory finds out what a host is made of: accelerators with their NVLink domain, NUMA nodes, network
// interfaces and which of them are near which GPU, disks, versions. It also reads what the hardware says of its own state,
// which package health judges. A host that is simulated reads all of it from a file.
//
// It owns the commands that it runs, and the reading of their output; it does not own what is wrong with what it finds
// (package health) or what may run where (the planner).
//
// NVIDIA's library is not linked: that needs cgo, and the agent is one static file for any Linux. The commands nvidia-smi
// and npu-smi come with every driver and tell the same.
//
// Invariants: every parser takes any text at all and gives what it understood of it; what is not known is left empty and
// never guessed; a look that failed is an error, not an empty host.
package inventory

import (
	"context"
	"time"

	"millrace/agents/wire"
)

// Limits of a look.
const (
	commandLimit = 20 * time.Second // of one command: nvidia-smi takes long when a GPU hangs
	maxOutput    = 8 << 20          // bytes of a command's output
	maxGPUs      = 256
	maxFile      = 4 << 20
	mebibyte     = 1 << 20
)

// Found is what one look saw.
type Found struct {
	wire.Inventory

	Readings  map[int]Reading // by GPU index; what the hardware says of its state
	Problems  []wire.Problem  // told outright: by a simulated host's file
	SkewMS    int64           // told outright: added to the clock's
	Simulated bool
}

// Reading is what a GPU says of its own state.
type Reading struct {
	Uncorrected  int64  // memory errors since the driver was loaded
	RemapPending bool   // rows are exchanged at the next reset
	RemapFailed  bool   // it has no spare rows left
	Margin       int    // degrees until it slows itself down
	MarginKnown  bool   // Margin is told
	Recovery     string // what the driver wants done, such as "Reset"; "" = nothing
	Unwell       string // a word of the driver's own; "" = well
}

// Source looks at a host. thorough asks the slow tools too; else the last thing they said is kept.
type Source interface {
	Look(ctx context.Context, thorough bool) (Found, error)
}
