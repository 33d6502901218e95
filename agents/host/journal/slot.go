package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"millrace/agents/wire"
	"millrace/internal/ids"
)

// slotName carries the format's version: another layout is another file.
const slotName = "slots.v1"

// Slot states.
const (
	slotFree uint32 = iota
	slotOpen
	slotEnded // the ending is set; the record may or may not be in a segment already
)

// slot is one running attempt in mapped memory: fixed layout, no pointers. Identity is written before state becomes
// slotOpen and never changes while it is; the counters change at any time.
type slot struct {
	state      atomic.Uint32
	crc        uint32 // of the identity
	kind       uint64
	id, unit   ids.ID
	started    atomic.Int64 // unix milliseconds
	ended      atomic.Int64
	ending     atomic.Uint64
	prompt     atomic.Int64
	cached     atomic.Int64
	generated  atomic.Int64
	handedOver atomic.Int64
	_          [24]byte // 128 bytes: two cache lines
}

const slotBytes = int(unsafe.Sizeof(slot{}))

func (s *slot) begin(id, unit ids.ID, kind uint64, nowMS int64) {
	s.id, s.unit, s.kind = id, unit, kind
	s.started.Store(nowMS)
	s.ended.Store(0)
	s.ending.Store(endOpen)
	s.prompt.Store(0)
	s.cached.Store(0)
	s.generated.Store(0)
	s.handedOver.Store(0)
	s.crc = s.sum()
	s.state.Store(slotOpen)
}

func (s *slot) end(ending uint64, nowMS int64) {
	s.ended.Store(nowMS)
	s.ending.Store(ending)
	s.state.Store(slotEnded)
}

func (s *slot) sum() uint32 {
	var b [48]byte
	copy(b[:], s.id[:])
	copy(b[16:], s.unit[:])
	putUint64(b[32:], s.kind)
	putUint64(b[40:], uint64(s.started.Load()))
	return crc32.ChecksumIEEE(b[:])
}

func (s *slot) valid() bool { return s.crc == s.sum() && s.id != ids.Nil }

func (s *slot) attempt() wire.Attempt {
	return wire.Attempt{
		ID: s.id, Unit: s.unit, Kind: kindName(s.kind), Ending: endingName(s.ending.Load()),
		Prompt: s.prompt.Load(), Cached: s.cached.Load(), Generated: s.generated.Load(), HandedOver: s.handedOver.Load(),
		StartedMS: s.started.Load(), EndedMS: s.ended.Load(),
	}
}

func raise(to *atomic.Int64, n int64) {
	if n > to.Load() {
		to.Store(n)
	}
}

// slotFile is the mapped file.
type slotFile struct {
	mem []byte
	all []slot
}

func openSlots(dir string) (*slotFile, error) {
	const size = Slots * slotBytes
	f, err := os.OpenFile(filepath.Join(dir, slotName), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping outlives the descriptor
	if err := reserve(f, int64(size)); err != nil {
		return nil, fmt.Errorf("reserving %d bytes: %w", size, err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", f.Name(), err)
	}
	return &slotFile{mem: mem, all: unsafe.Slice((*slot)(unsafe.Pointer(&mem[0])), Slots)}, nil
}

// reserve gives the file its blocks now: a write to a mapped hole on a full disk would kill the process.
func reserve(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	info, err := f.Stat()
	if err != nil || info.Size() >= size {
		return err
	}
	_, err = f.WriteAt(make([]byte, size-info.Size()), info.Size())
	return err
}

func (f *slotFile) close() error { return unix.Munmap(f.mem) }
