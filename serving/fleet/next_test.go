package fleet_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/serving/fleet"
)

var limits = fleet.Limits{Progress: time.Hour, Settle: 3 * time.Second, Drain: time.Minute, Fault: 10 * time.Second, Pause: 30 * time.Second,
	MaxPause: time.Minute, Tries: 3, Repair: time.Minute}

// grp is a group of one engine: its role, its state, and what its agent says.
func grp(role, state, seen string, change ...func(*fleet.Group)) fleet.Group {
	g := fleet.Group{Role: role, State: state, Since: 5 * time.Second, Parts: []fleet.Part{{Name: "h1", Seen: fleet.Seen{State: seen, Gone: seen == wire.StateStopped}}}}
	for _, c := range change {
		c(&g)
	}
	return g
}

func since(d time.Duration) func(*fleet.Group) { return func(g *fleet.Group) { g.Since = d } }
func tries(n int) func(*fleet.Group)           { return func(g *fleet.Group) { g.Tries = n } }
func room(why string) func(*fleet.Group)       { return func(g *fleet.Group) { g.Room = why } }
func reshape(moves bool) func(*fleet.Group) {
	return func(g *fleet.Group) { g.Reshape, g.Moves = "shrinks", moves }
}
func seen(c func(*fleet.Seen)) func(*fleet.Group) {
	return func(g *fleet.Group) { c(&g.Parts[0].Seen) }
}
func says(text string) func(*fleet.Group) { return seen(func(s *fleet.Seen) { s.Text = text }) }
func broken(g *fleet.Group)               { g.Parts[0].Seen.Broken = "Xid 79" }
func lost(g *fleet.Group)                 { g.Parts[0].Seen.Lost = true }
func idle(g *fleet.Group)                 { g.Parts[0].Seen.Idle = true }

const (
	whole   = "whole"
	prefill = "prefill"
	decode  = "decode"
	ready   = wire.StateReady
	stopped = wire.StateStopped
	faulted = wire.StateFaulted
	quiet   = ""
)

func TestNext(t *testing.T) {
	one := func(g fleet.Group) fleet.Unit {
		return fleet.Unit{State: g.State, Needed: []string{g.Role}, Groups: []fleet.Group{g}}
	}
	pair := func(state string, groups ...fleet.Group) fleet.Unit {
		return fleet.Unit{State: state, Needed: []string{prefill, decode}, Groups: groups}
	}
	leaving := func(u fleet.Unit, may bool) fleet.Unit { u.Leaving, u.MayLeave = "not wanted", may; return u }
	for name, c := range map[string]struct {
		unit   fleet.Unit
		groups string // states after the step
		state  string // of the unit
		says   string // part of the step's text
		remove bool
	}{
		"a planned one starts":                    {unit: one(grp(whole, "planned", stopped)), groups: "starting", state: "starting"},
		"but not without room":                    {unit: one(grp(whole, "planned", stopped, room("GPU 1 is held"))), groups: "planned", state: "planned", says: "waits: GPU 1 is held"},
		"it waits until it is ready":              {unit: one(grp(whole, "starting", wire.StateStarting)), groups: "starting", state: "starting"},
		"what was said of an earlier wish is old": {unit: one(grp(whole, "starting", quiet)), groups: "starting", state: "starting"},
		"ready when it has generated":             {unit: one(grp(whole, "starting", ready)), groups: "ready", state: "ready"},
		"then it serves":                          {unit: one(grp(whole, "ready", ready)), groups: "serving", state: "serving"},
		"too late":                                {unit: one(grp(whole, "starting", wire.StateStarting, since(time.Hour), says("loading"))), groups: "faulted", state: "faulted", says: "not ready after 1h0m0s: on host h1 it is starting, loading"},
		"it keeps failing":                        {unit: one(grp(whole, "starting", faulted, says("no such file"))), groups: "faulted", state: "faulted", says: "no such file"},
		"its host is away while it starts":        {unit: one(grp(whole, "starting", quiet, lost, since(2*time.Minute))), groups: "faulted", state: "faulted", says: "h1 is not heard of"},
		"tried again after a pause":               {unit: one(grp(whole, "faulted", stopped, since(31*time.Second))), groups: "planned", state: "planned"},
		"not before":                              {unit: one(grp(whole, "faulted", stopped, since(29*time.Second))), groups: "faulted", state: "faulted"},
		"a longer pause each time":                {unit: one(grp(whole, "faulted", stopped, tries(1), since(59*time.Second))), groups: "faulted", state: "faulted"},
		"and not for ever":                        {unit: one(grp(whole, "faulted", stopped, tries(3), since(time.Hour))), groups: "faulted", state: "faulted"},
		"not while an engine still runs":          {unit: one(grp(whole, "faulted", wire.StateDraining, since(time.Hour))), groups: "faulted", state: "faulted"},
		"not on broken hardware":                  {unit: one(grp(whole, "faulted", stopped, broken, since(time.Hour))), groups: "faulted", state: "faulted"},

		"a restart by the agent is the agent's":   {unit: one(grp(whole, "serving", wire.StateStarting)), groups: "serving", state: "serving"},
		"an engine that keeps failing":            {unit: one(grp(whole, "serving", faulted, says("OOM"))), groups: "faulted", state: "faulted", says: "OOM"},
		"broken hardware is left":                 {unit: one(grp(whole, "serving", ready, broken)), groups: "draining", state: "draining", says: "Xid 79"},
		"a host that is away may be back":         {unit: one(grp(whole, "serving", ready, lost)), groups: "serving", state: "serving"},
		"a drain on broken hardware is short":     {unit: one(grp(whole, "draining", wire.StateDraining, broken, since(10*time.Second))), groups: "stopped", state: "stopped"},
		"mended while it drains":                  {unit: one(grp(whole, "draining", wire.StateDraining)), groups: "serving", state: "serving"},
		"another shape, when it may":              {unit: one(grp(whole, "serving", ready, reshape(true))), groups: "draining", state: "draining", says: "shrinks"},
		"not when it may not":                     {unit: one(grp(whole, "serving", ready, reshape(false))), groups: "serving", state: "serving"},
		"a new shape once it is gone":             {unit: one(grp(whole, "stopped", stopped, reshape(true))), groups: "planned", state: "planned", says: "shrinks"},
		"not before it is gone":                   {unit: one(grp(whole, "stopped", wire.StateDraining, reshape(true))), groups: "stopped", state: "stopped"},
		"away from a host that is lost":           {unit: one(grp(whole, "stopped", quiet, lost, reshape(true))), groups: "planned", state: "planned"},
		"a planned one takes its new shape first": {unit: one(grp(whole, "planned", stopped, reshape(true))), groups: "planned", state: "planned", says: "shrinks"},

		"the whole gang starts or none":    {unit: pair("planned", grp(prefill, "planned", stopped), grp(decode, "planned", stopped, room("held"))), groups: "planned planned", state: "planned"},
		"together":                         {unit: pair("planned", grp(prefill, "planned", stopped), grp(decode, "planned", stopped)), groups: "starting starting", state: "starting"},
		"one is ready":                     {unit: pair("starting", grp(prefill, "starting", ready), grp(decode, "starting", wire.StateStarting)), groups: "ready starting", state: "starting"},
		"it waits for the other":           {unit: pair("starting", grp(prefill, "ready", ready), grp(decode, "starting", wire.StateStarting)), groups: "ready starting", state: "starting"},
		"all are ready":                    {unit: pair("ready", grp(prefill, "ready", ready), grp(decode, "ready", ready)), groups: "serving serving", state: "serving"},
		"a gang that never served, fails":  {unit: pair("starting", grp(prefill, "ready", ready), grp(decode, "starting", faulted, says("no"))), groups: "faulted faulted", state: "faulted", says: "no"},
		"one decode of two":                {unit: pair("serving", grp(prefill, "serving", ready), grp(decode, "serving", ready, broken), grp(decode, "serving", ready)), groups: "serving draining serving", state: "serving", says: "Xid 79"},
		"the only decode":                  {unit: pair("serving", grp(prefill, "serving", ready), grp(decode, "serving", ready, broken)), groups: "serving draining", state: "faulted", says: "Xid 79"},
		"it comes back by itself":          {unit: pair("faulted", grp(prefill, "serving", ready), grp(decode, "ready", ready)), groups: "serving serving", state: "serving"},
		"decode alone is not started":      {unit: pair("faulted", grp(prefill, "faulted", stopped, broken), grp(decode, "faulted", stopped, since(time.Hour))), groups: "faulted faulted", state: "faulted"},
		"prefill may be missing by recipe": {unit: fleet.Unit{State: "serving", Needed: []string{decode}, Groups: []fleet.Group{grp(prefill, "serving", faulted), grp(decode, "serving", ready)}}, groups: "faulted serving", state: "serving"},

		"what is to go is drained":             {unit: leaving(one(grp(whole, "serving", ready)), true), groups: "draining", state: "draining", says: "not wanted"},
		"not while it is needed":               {unit: leaving(one(grp(whole, "serving", ready)), false), groups: "serving", state: "serving"},
		"gateways have time to hear":           {unit: leaving(one(grp(whole, "draining", wire.StateDraining, idle, since(2*time.Second))), true), groups: "draining", state: "draining"},
		"idle":                                 {unit: leaving(one(grp(whole, "draining", wire.StateDraining, idle)), true), groups: "stopped", state: "stopped"},
		"what runs may end":                    {unit: leaving(one(grp(whole, "draining", wire.StateDraining, since(59*time.Second))), true), groups: "draining", state: "draining"},
		"within its time":                      {unit: leaving(one(grp(whole, "draining", wire.StateDraining, since(time.Minute))), true), groups: "stopped", state: "stopped", says: "not drained after 1m0s"},
		"a drain that began is finished":       {unit: leaving(one(grp(whole, "draining", wire.StateDraining, idle)), false), groups: "stopped", state: "stopped"},
		"what never served goes at once":       {unit: leaving(pair("starting", grp(prefill, "ready", ready), grp(decode, "starting", wire.StateStarting)), true), groups: "stopped stopped", state: "stopped"},
		"gone when the agents say so":          {unit: leaving(one(grp(whole, "stopped", stopped)), true), groups: "stopped", state: "stopped", remove: true},
		"not while an engine runs":             {unit: leaving(one(grp(whole, "stopped", wire.StateDraining)), true), groups: "stopped", state: "stopped"},
		"nor while its host is not heard of":   {unit: leaving(one(grp(whole, "stopped", quiet, lost)), true), groups: "stopped", state: "stopped"},
		"a unit without rows goes when it may": {unit: leaving(fleet.Unit{State: "serving", Needed: []string{decode}}, true), groups: "", state: "stopped", remove: true},
		"and else stays as it is":              {unit: fleet.Unit{State: "serving", Needed: []string{decode}}, groups: "", state: "serving"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fleet.Next(c.unit, limits)
			states := make([]string, len(c.unit.Groups))
			for i, g := range c.unit.Groups {
				states[i] = g.State
			}
			for _, x := range s.Changes {
				states[x.Group] = x.To
			}
			if got := strings.Join(states, " "); got != c.groups || s.State != c.state || s.Remove != c.remove || !strings.Contains(s.Text, c.says) {
				t.Errorf("groups %q, unit %q, remove %v, %q", got, s.State, s.Remove, s.Text)
			}
		})
	}
}

// Deciding twice on what has not changed decides the same, and on what has been done decides nothing more of it.
func TestNextIsLevelTriggered(t *testing.T) {
	u := fleet.Unit{State: "serving", Needed: []string{prefill, decode}, Groups: []fleet.Group{grp(prefill, "serving", ready), grp(decode, "serving", ready, broken), grp(decode, "serving", ready)}}
	first, again := fleet.Next(u, limits), fleet.Next(u, limits)
	if !slices.Equal(first.Changes, again.Changes) || first.State != again.State {
		t.Errorf("%+v, then %+v", first, again)
	}
	for _, c := range first.Changes {
		u.Groups[c.Group].State, u.Groups[c.Group].Since = c.To, 0
	}
	if s := fleet.Next(u, limits); len(s.Changes) != 0 {
		t.Errorf("done already: %+v", s.Changes)
	}
}

// The times of a trial are the default ones but for those that are named; a misspelled one is none.
func TestTimesByName(t *testing.T) {
	got, err := fleet.DefaultLimits.With(map[string]time.Duration{"lost": time.Second, "max-pause": 2 * time.Second})
	want := fleet.DefaultLimits
	want.Lost, want.MaxPause = time.Second, 2*time.Second
	if err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []map[string]time.Duration{{"lots": time.Second}, {"lost": 0}, {"tries": 3}} {
		if _, err := fleet.DefaultLimits.With(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
