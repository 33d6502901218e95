package main

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// gcPercent lets garbage grow to three times what lives before it is collected. A gateway's live heap is tens of
	// megabytes and each request leaves some kilobytes, so at Go's usual 100 it collects several times a second under
	// load; memory is cheaper than that.
	gcPercent = 300
	// syncing is how many goroutines may wait for the disk while as many others as there are cores compute. A sync blocks
	// a thread, and the runtime takes some time to give its place to another.
	syncing = 2
)

// tuneRuntime is for the programs that serve. What the operator has set (GOGC, GOMAXPROCS) stays; GOMEMLIMIT bounds
// memory as everywhere.
func tuneRuntime() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + syncing)
	}
}
