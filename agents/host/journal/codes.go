package journal

import (
	"encoding/binary"

	"millrace/agents/wire"
)

// Codes of endings and kinds on disk. Append only.
const (
	endOpen uint64 = iota
	endComplete
	endCallerLeft
	endEngineFailed
	endAgentDied
)

var (
	endings = [...]string{wire.EndOpen, wire.EndComplete, wire.EndCallerLeft, wire.EndEngineFailed, wire.EndAgentDied}
	kinds   = [...]string{wire.KindServe, wire.KindProbe, wire.KindGolden}
)

// endingCode of a name this program does not know is engine_failed: the record must not be lost.
func endingCode(name string) uint64 {
	for i, n := range endings {
		if n == name {
			return uint64(i)
		}
	}
	return endEngineFailed
}

func endingName(code uint64) string {
	if code < uint64(len(endings)) {
		return endings[code]
	}
	return wire.EndEngineFailed
}

func kindCode(name string) (uint64, bool) {
	for i, n := range kinds {
		if n == name {
			return uint64(i), true
		}
	}
	return 0, false
}

func kindName(code uint64) string {
	if code < uint64(len(kinds)) {
		return kinds[code]
	}
	return wire.KindServe
}

func putUint64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
