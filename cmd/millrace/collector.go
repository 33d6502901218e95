package main

import (
	"os"
	"runtime/debug"
)

// gcPercent lets garbage grow to three times what lives before it is collected. A gateway's live heap is tens of
// megabytes and each request leaves some kilobytes, so at Go's usual 100 it collects several times a second under load;
// memory is cheaper than that.
const gcPercent = 300

// relaxCollector sets gcPercent unless the operator has set GOGC. GOMEMLIMIT bounds memory as everywhere.
func relaxCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
