// Package journal keeps one record per attempt at an engine on this host: the independent side of `millrace reconcile`. It
// bounds bills from above and is never the source of a charge.
//
// While an attempt runs, its counters live in a slot of a memory-mapped file, so a kill -9 of the agent loses nothing: the
// kernel keeps the pages, and the next Open closes what was running as agent_died. Ended records are appended to segment
// files, shipped to the hub, and deleted only once the hub has stored them.
//
// It owns its folder and the record's format; it does not know engines, connections or prices.
//
// Invariants: every record that Begin made is shipped at least once with an ending (the hub stores by id, so twice is as
// good as once); counters never run backwards; the disk used is bounded, and what the bound costs is counted, not hidden.
// A power cut, unlike a kill, may lose what the kernel had not written yet.
package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
)

// Limits of one journal.
const (
	Slots           = 8192      // attempts running at once on one host
	maxSegmentBytes = 1 << 20   // a segment is sealed then, at the latest
	maxDiskBytes    = 256 << 20 // all segments: two million records; the oldest go first above it
	folderMode      = 0o700
	fileMode        = 0o600
)

// ErrBusy means that as many attempts run as the journal can count.
var ErrBusy = errors.New("journal: too many attempts at once on this host")

// Journal is safe for concurrent use.
type Journal struct {
	clock clock.Clock
	log   *slog.Logger
	slots *slotFile
	segs  *segments

	mu   sync.Mutex
	free []int32
	// stuck are ended records whose append failed (disk full): they keep their slot until they are shipped from there.
	stuck []int32
	wake  chan struct{} // capacity 1: something can be shipped
}

// Open takes the folder over and closes what a killed agent left running. One process at a time may have it open (the
// agent holds its data folder's lock).
func Open(dir string, c clock.Clock, log *slog.Logger) (*Journal, error) {
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	slots, err := openSlots(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	segs, err := openSegments(dir, log)
	if err != nil {
		_ = slots.close()
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{clock: c, log: log, slots: slots, segs: segs, wake: make(chan struct{}, 1)}
	j.recover()
	return j, nil
}

// recover closes the slots of the process before this one.
func (j *Journal) recover() {
	died := 0
	for i := len(j.slots.all) - 1; i >= 0; i-- {
		s := &j.slots.all[i]
		switch state := s.state.Load(); {
		case state == slotFree:
		case !s.valid():
			j.log.Error("journal: a slot is unreadable and was given up", "slot", i)
			s.state.Store(slotFree)
		default:
			if state == slotOpen {
				died++
				s.handedOver.Store(s.generated.Load()) // the last chunk may have left: the journal bounds from above
				s.end(endAgentDied, j.clock.Now().UnixMilli())
			}
			j.file(int32(i))
			continue
		}
		j.free = append(j.free, int32(i))
	}
	j.signal() // what earlier processes left is shipped
	if died > 0 {
		j.log.Warn("journal: closed the attempts that a killed agent left running", "attempts", died)
	}
}

// Begin opens a record. ErrBusy when there is no room: the attempt must not be made.
func (j *Journal) Begin(id, unit ids.ID, kind string) (*Record, error) {
	k, ok := kindCode(kind)
	if !ok {
		return nil, fmt.Errorf("journal: unknown kind %q", kind)
	}
	now := j.clock.Now().UnixMilli()
	j.mu.Lock()
	if len(j.free) == 0 {
		j.mu.Unlock()
		return nil, ErrBusy
	}
	i := j.free[len(j.free)-1]
	j.free = j.free[:len(j.free)-1]
	j.slots.all[i].begin(id, unit, k, now) // under the lock: open reads identities
	j.mu.Unlock()
	return &Record{journal: j, slot: &j.slots.all[i], index: i}, nil
}

// Record is one running attempt. Its methods are for one goroutine.
type Record struct {
	journal *Journal
	slot    *slot
	index   int32
	ended   bool
}

// Count sets what the engine has said so far. Lower numbers than before are ignored.
func (r *Record) Count(prompt, cached, generated int64) {
	raise(&r.slot.prompt, prompt)
	raise(&r.slot.cached, cached)
	raise(&r.slot.generated, generated)
}

// HandedOver says that everything counted so far has been written towards the caller.
func (r *Record) HandedOver() { r.slot.handedOver.Store(r.slot.generated.Load()) }

// Progress is a number that grows while the attempt gets somewhere: tokens handed over.
func (r *Record) Progress() int64 { return r.slot.handedOver.Load() }

// End closes the record; further calls do nothing.
func (r *Record) End(ending string) {
	if r.ended {
		return
	}
	r.ended = true
	r.slot.end(endingCode(ending), r.journal.clock.Now().UnixMilli())
	r.journal.file(r.index)
}

// file moves an ended record from its slot to a segment.
func (j *Journal) file(i int32) {
	err := j.segs.append(j.slots.all[i].attempt())
	j.mu.Lock()
	if err != nil {
		j.stuck = append(j.stuck, i)
	} else {
		j.slots.all[i].state.Store(slotFree)
		j.free = append(j.free, i)
	}
	j.mu.Unlock()
	if err != nil {
		j.log.Error("journal: a record stays in memory until it is shipped", "error", err)
	}
	j.signal()
}

func (j *Journal) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Dropped counts the records lost to the disk bound since Open.
func (j *Journal) Dropped() int64 { return j.segs.dropped.Load() }

// Running is the number of attempts that run now.
func (j *Journal) Running() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Slots - len(j.free) - len(j.stuck)
}

// open gives snapshots of the attempts that began before a moment.
func (j *Journal) open(beforeMS int64) []wire.Attempt {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []wire.Attempt
	for i := range j.slots.all {
		s := &j.slots.all[i]
		if s.state.Load() == slotOpen && s.started.Load() <= beforeMS {
			a := s.attempt()
			a.Ending, a.EndedMS = wire.EndOpen, 0 // it may just be ending: then its record follows and replaces this
			out = append(out, a)
		}
	}
	return out
}

// Close releases the files. Records still running are closed as agent_died by the next Open.
func (j *Journal) Close() error {
	return errors.Join(j.segs.close(), j.slots.close())
}
