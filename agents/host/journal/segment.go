package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"millrace/agents/wire"
)

// A segment is a file of records of recordBytes each: magic, CRC-32 of the rest, then the fields in little endian.
const (
	recordBytes = 112
	magic       = 0x314a524d // "MRJ1"
	segPattern  = "seg-%016x.log"
)

func encode(a wire.Attempt) (b [recordBytes]byte) {
	kind, _ := kindCode(a.Kind)
	binary.LittleEndian.PutUint32(b[0:], magic)
	copy(b[8:], a.ID[:])
	copy(b[24:], a.Unit[:])
	for i, v := range [...]int64{int64(kind), int64(endingCode(a.Ending)), a.Prompt, a.Cached, a.Generated, a.HandedOver, a.StartedMS, a.EndedMS} {
		putUint64(b[40+8*i:], uint64(v))
	}
	binary.LittleEndian.PutUint32(b[4:], crc32.ChecksumIEEE(b[8:]))
	return b
}

// decode reads one record; false when it is damaged.
func decode(b []byte) (wire.Attempt, bool) {
	if len(b) < recordBytes || binary.LittleEndian.Uint32(b) != magic ||
		binary.LittleEndian.Uint32(b[4:]) != crc32.ChecksumIEEE(b[8:recordBytes]) {
		return wire.Attempt{}, false
	}
	var v [8]int64
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(b[40+8*i:]))
	}
	a := wire.Attempt{Kind: kindName(uint64(v[0])), Ending: endingName(uint64(v[1])),
		Prompt: v[2], Cached: v[3], Generated: v[4], HandedOver: v[5], StartedMS: v[6], EndedMS: v[7]}
	copy(a.ID[:], b[8:])
	copy(a.Unit[:], b[24:])
	return a, true
}

// segments is the queue of files. The last one is being written, the others are sealed.
type segments struct {
	dir     string
	log     *slog.Logger
	dropped atomic.Int64

	mu     sync.Mutex
	sealed []segment // oldest first
	active *os.File
	size   int64 // of active
	next   uint64
}

type segment struct {
	path string
	size int64
}

func openSegments(dir string, log *slog.Logger) (*segments, error) {
	s := &segments{dir: dir, log: log}
	entries, err := os.ReadDir(dir) // sorted by name, so by age
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var n uint64
		if _, err := fmt.Sscanf(e.Name(), segPattern, &n); err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		s.sealed = append(s.sealed, segment{filepath.Join(dir, e.Name()), info.Size()})
		s.next = max(s.next, n+1)
	}
	return s, nil
}

// append writes one record. On an error the file is as before.
func (s *segments) append(a wire.Attempt) error {
	rec := encode(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active == nil {
		f, err := os.OpenFile(filepath.Join(s.dir, fmt.Sprintf(segPattern, s.next)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
		if err != nil {
			return err
		}
		s.active, s.size = f, 0
		s.next++
	}
	if _, err := s.active.WriteAt(rec[:], s.size); err != nil {
		return errors.Join(err, s.active.Truncate(s.size))
	}
	if s.size += recordBytes; s.size >= maxSegmentBytes {
		return s.seal()
	}
	return nil
}

// seal ends the active segment and drops the oldest ones above the disk bound. Callers hold the mutex.
func (s *segments) seal() error {
	if s.active == nil {
		return nil
	}
	s.sealed = append(s.sealed, segment{s.active.Name(), s.size})
	err := s.active.Close()
	s.active = nil
	var total int64
	for _, seg := range s.sealed {
		total += seg.size
	}
	for total > maxDiskBytes {
		oldest := s.sealed[0]
		if rmErr := os.Remove(oldest.path); rmErr != nil {
			return errors.Join(err, rmErr)
		}
		lost := oldest.size / recordBytes
		s.dropped.Add(lost)
		s.log.Error("journal: records dropped, the hub has not taken them and the disk bound is reached", "records", lost)
		s.sealed = s.sealed[1:]
		total -= oldest.size
	}
	return err
}

// take seals what is there and gives the oldest segment; ok is false when there is none.
func (s *segments) take() (seg segment, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.seal()
	if len(s.sealed) == 0 {
		return segment{}, false, err
	}
	return s.sealed[0], true, err
}

// read gives a segment's records. Damaged ones are counted as dropped.
func (s *segments) read(seg segment) ([]wire.Attempt, error) {
	b, err := os.ReadFile(seg.path)
	if err != nil {
		return nil, err
	}
	out := make([]wire.Attempt, 0, len(b)/recordBytes)
	for ; len(b) > 0; b = b[min(recordBytes, len(b)):] {
		if a, ok := decode(b); ok {
			out = append(out, a)
			continue
		}
		s.dropped.Add(1)
		s.log.Error("journal: a damaged record was skipped", "file", seg.path)
	}
	return out, nil
}

// remove deletes a segment that the hub has stored.
func (s *segments) remove(seg segment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = slices.DeleteFunc(s.sealed, func(x segment) bool { return x.path == seg.path })
	if err := os.Remove(seg.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (s *segments) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seal()
}
