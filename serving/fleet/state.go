package fleet

import (
	"fmt"
	"time"

	"millrace/internal/ids"
)

// States of a unit and of its groups.
const (
	Planned  = "planned"  // its rows are there, its GPUs may still be another's
	Starting = "starting" // agents start its engines
	Ready    = "ready"    // every engine has generated
	Serving  = "serving"  // gateways send it work
	Draining = "draining" // nothing new; what runs may end
	Stopped  = "stopped"  // its engines shall be gone
	Faulted  = "faulted"  // it failed, and why; tried again after a pause
)

// wantedOf is what agents and gateways are told of a state: units.wanted.
func wantedOf(state string) string {
	switch state {
	case Starting, Ready, Serving:
		return Serving
	case Draining:
		return Draining
	}
	return Stopped
}

// Limits are the times and counts of the state machine.
type Limits struct {
	Progress time.Duration // from starting to ready; the agent's own limit for one engine is 30 min
	Settle   time.Duration // before a drain may end: gateways have heard, and what they had already sent has arrived
	Drain    time.Duration // for what runs to end
	Fault    time.Duration // the same on hardware that failed
	Pause    time.Duration // before a failed start is tried again; doubles
	MaxPause time.Duration
	Tries    int           // failed starts after which only another plan helps
	Lost     time.Duration // without a word from its agent a host counts as lost
	Repair   time.Duration // and is replaced
	Wait     time.Duration // after taking the lease: agents have had time to report
	Think    time.Duration // between two looks for a repair
}

// DefaultLimits are those of a program.
var DefaultLimits = Limits{
	Progress: 45 * time.Minute, Settle: 3 * time.Second, Drain: 10 * time.Minute, Fault: 15 * time.Second,
	Pause: 30 * time.Second, MaxPause: 10 * time.Minute, Tries: 6, Lost: 20 * time.Second, Repair: time.Minute, Wait: 30 * time.Second, Think: 5 * time.Second,
}

// With gives limits of which the named times are others: what a trial of the whole program cannot wait for.
func (l Limits) With(times map[string]time.Duration) (Limits, error) {
	known := map[string]*time.Duration{"progress": &l.Progress, "settle": &l.Settle, "drain": &l.Drain, "fault": &l.Fault, "pause": &l.Pause,
		"max-pause": &l.MaxPause, "lost": &l.Lost, "repair": &l.Repair, "wait": &l.Wait, "think": &l.Think}
	for name, d := range times {
		at := known[name]
		if at == nil || d <= 0 {
			return l, fmt.Errorf("%s=%v is no time of the fleet", name, d)
		}
		*at = d
	}
	return l, nil
}

// Seen is what is known of one engine now.
type Seen struct {
	State  string // the agent's, of what it was last told; "" = it has not said
	Text   string
	Gone   bool   // proved: no engine of this row runs
	Lost   bool   // its host is not heard of
	Broken string // why its hardware cannot be used; "" = it can
	Idle   bool   // known: no request runs in it
}

// Part is a row: one engine process on one host.
type Part struct {
	ID   ids.ID
	Host ids.ID
	Name string // of the host
	Seen Seen
}

// Group is the parts of one replica.
type Group struct {
	Role    string
	Replica int
	State   string
	Since   time.Duration // in that state
	Tries   int
	Text    string
	Parts   []Part
	Reshape string // why the plan gives it another shape; "" = it has the plan's
	Moves   bool   // and it may go down for that now
	Drop    bool   // the plan does without it
	Room    string // what holds its GPUs, or why they cannot be used; "" = it may start
}

// Unit is what the state machine decides on.
type Unit struct {
	State    string
	Groups   []Group
	Needed   []string // roles without which it cannot serve
	Leaving  string   // why it goes; "" = it stays
	MayLeave bool
}

// Change is one group's next state.
type Change struct {
	Group int
	To    string
	Text  string
	Tries int
	Shape bool // it takes the plan's shape at the same time
	Drop  bool // its rows go
}

// Step is everything that happens to a unit at once. The zero Step is nothing.
type Step struct {
	Changes []Change
	State   string // of the unit, after it
	Text    string
	Remove  bool // nothing of it runs any more: its rows go
}
