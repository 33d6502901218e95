// Package health says what is wrong with a host: from what was found at each look (package inventory), from the kernel's
// log, and from the control side's clock.
//
// It owns the rules, how long something must be bad to count and good to count again, and the memory of GPUs that were
// there; it does not look at anything itself and does not decide what becomes of units.
//
// Invariants: something that comes and goes is one problem, not many; a GPU that is gone stays in the inventory, faulted,
// and keeps its index, and so do the others; a look that failed makes nothing disappear.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/agents/host/inventory"
	"millrace/agents/wire"
)

// Limits.
const (
	hotMargin  = 0               // degrees to the slow-down, and below
	maxSkew    = 2 * time.Second // above it certificates, deadlines and bills' times begin to disagree
	calmSkew   = time.Second
	fullShare  = 0.05 // of a disk left free
	roomyShare = 0.08
	maxXids    = 1000 // remembered
)

// patience is how long something is bad before it is told, and good before that is.
type patience struct{ bad, good time.Duration }

// Each problem's patience. A cable that is pulled and put back within good is one problem: a plan that followed it would
// move units back and forth.
var patiences = map[string]patience{
	wire.ProblemXid:   {0, 0}, // the kernel's log does not flap
	wire.ProblemECC:   {0, 10 * time.Minute},
	wire.ProblemHeat:  {30 * time.Second, 5 * time.Minute},
	wire.ProblemLost:  {15 * time.Second, time.Minute},
	wire.ProblemNIC:   {10 * time.Second, 2 * time.Minute},
	wire.ProblemClock: {10 * time.Second, time.Minute},
	wire.ProblemDisk:  {0, time.Minute},
}

// Watch is what is known of a host's health. It is for one goroutine.
type Watch struct {
	known    []wire.GPU     // every GPU that was seen, by index
	current  map[int]int    // index -> the tool's number now
	xids     map[string]Xid // the worst by slot
	since    map[string]time.Time
	problems map[key]*state
	seen     map[string]bool // NICs that have been up
}

type key struct{ code, subject string }

// state is one possible problem.
type state struct {
	told    bool
	badFrom time.Time // zero = good now
	goodAt  time.Time // since when it is good, while it is still told
	last    wire.Problem
}

// New begins with the GPUs that an earlier process saw.
func New(known []wire.GPU) *Watch {
	return &Watch{known: known, xids: map[string]Xid{}, since: map[string]time.Time{}, problems: map[key]*state{}, seen: map[string]bool{}}
}

// Known is every GPU that was seen, for the next process.
func (w *Watch) Known() []wire.GPU { return w.known }

// Xid takes one of the kernel's messages.
func (w *Watch) Xid(x Xid, at time.Time) {
	v, _ := x.judge()
	if x.Code == recovery && v == programs { // it was reset
		delete(w.xids, x.PCI)
		delete(w.since, x.PCI)
		return
	}
	old, there := w.xids[x.PCI]
	if was, _ := old.judge(); v == programs || there && was >= v || !there && len(w.xids) >= maxXids {
		return
	}
	w.xids[x.PCI], w.since[x.PCI] = x, at
}

// Forget drops what the kernel's log has told so far: somebody reset or replaced what it was about.
func (w *Watch) Forget() { clear(w.xids); clear(w.since) }

// See takes a look and gives the host as it should be told: with the GPUs that are missing, and those faulted that must not
// be used, and everything that is wrong.
func (w *Watch) See(f inventory.Found, skew time.Duration, now time.Time) (wire.Inventory, []wire.Problem) {
	bad := map[key]wire.Problem{}
	say := func(code, subject, message string, fatal bool, since time.Time) {
		bad[key{code, subject}] = wire.Problem{Code: code, Subject: subject, Message: message, Fatal: fatal, SinceMS: since.UnixMilli()}
	}
	inv := f.Inventory
	readings := f.Readings
	inv.GPUs, readings = w.number(f.GPUs, readings)
	missing := w.missing(inv.GPUs)
	for _, g := range missing {
		say(wire.ProblemLost, subject(g.Index), "It was there before: "+g.Model+" "+g.UUID, true, now)
	}
	for _, g := range inv.GPUs {
		w.gpu(g, readings[g.Index], say, now)
	}
	w.rest(&inv, skew+time.Duration(f.SkewMS)*time.Millisecond, say, now)
	for _, p := range f.Problems {
		say(p.Code, p.Subject, p.Message, p.Fatal, now)
	}
	problems := w.settle(bad, now)
	inv.GPUs = append(inv.GPUs, missing...) // until they count as lost, so that a blink of the driver is none
	slices.SortFunc(inv.GPUs, func(a, b wire.GPU) int { return a.Index - b.Index })
	for i := range inv.GPUs {
		for _, p := range problems {
			if p.Fatal && p.Subject == subject(inv.GPUs[i].Index) && inv.GPUs[i].Fault == "" {
				inv.GPUs[i].Fault = p.Message
			}
		}
	}
	return inv, problems
}

func subject(index int) string { return fmt.Sprintf("gpu:%d", index) }

// gpu says what is wrong with one.
func (w *Watch) gpu(g wire.GPU, r inventory.Reading, say func(code, subject, message string, fatal bool, since time.Time), now time.Time) {
	s := subject(g.Index)
	if x, ok := w.xids[slot(g.PCI)]; ok && g.PCI != "" {
		v, words := x.judge()
		say(wire.ProblemXid, s, words, v == fatal, w.since[slot(g.PCI)])
	}
	switch action := strings.ToLower(r.Recovery); {
	case strings.Contains(action, "reset") || strings.Contains(action, "reboot"):
		say(wire.ProblemXid, s, "The driver asks for: "+r.Recovery, true, now)
	case r.Unwell != "":
		say(wire.ProblemXid, s, "The driver calls it: "+r.Unwell, true, now)
	}
	switch {
	case r.RemapFailed:
		say(wire.ProblemECC, s, "It has no spare memory rows left: the board must be replaced.", true, now)
	case r.RemapPending:
		say(wire.ProblemECC, s, "Memory rows wait to be exchanged: reset it when it is idle.", false, now)
	case r.Uncorrected > 0:
		say(wire.ProblemECC, s, fmt.Sprintf("%d memory errors that were not corrected since the driver was loaded.", r.Uncorrected), false, now)
	}
	if r.MarginKnown && r.Margin <= hotMargin {
		say(wire.ProblemHeat, s, "It is so hot that it slows itself down.", false, now)
	}
}

// rest says what is wrong with NICs, disks and the clock.
func (w *Watch) rest(inv *wire.Inventory, skew time.Duration, say func(code, subject, message string, fatal bool, since time.Time), now time.Time) {
	for _, n := range inv.NICs {
		if n.Up {
			w.seen[n.Name] = true
		} else if w.seen[n.Name] || n.RDMA != "" { // a port that never had a cable is no news
			say(wire.ProblemNIC, "nic:"+n.Name, "It has no link.", false, now)
		}
	}
	for _, d := range inv.Disks {
		left := float64(d.FreeBytes) / float64(max(d.Bytes, 1))
		if left < fullShare || left < roomyShare && w.told(wire.ProblemDisk, "disk:"+d.Path) {
			say(wire.ProblemDisk, "disk:"+d.Path, fmt.Sprintf("%.0f %% are free.", 100*left), false, now)
		}
	}
	if off := skew.Abs(); off > maxSkew || off > calmSkew && w.told(wire.ProblemClock, "host") {
		say(wire.ProblemClock, "host", fmt.Sprintf("Its clock is %s off the control side's: check its time service.", skew.Round(500*time.Millisecond)), false, now)
	}
}

func (w *Watch) told(code, subject string) bool {
	s := w.problems[key{code, subject}]
	return s != nil && s.told
}
