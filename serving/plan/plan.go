// Package plan decides where units go. It is pure: the same fleet, demands and current plan give the same plan; it knows no
// database, no clock and no network.
//
// It owns the rules of placement, the objective, the search for a good plan, its explanation and its check. It does not own
// what is wanted (demands come from policies), nor how a plan is carried out (serving/fleet).
//
// Words. Demand: how many units of a release a model wants, and where they may be. Gang: all shards of a unit, placed whole
// or not at all. Spare: a GPU that is left free in a domain so that a fault has somewhere to go. Move: one difference
// between a plan and its parent, with its reason. Heir: the unit that takes over from one that ends.
//
// Invariants: no GPU is in two shards; every replica is in one scale-up domain, and the pools of a unit in one network; a
// host that is cordoned, lost, unfit or of unknown topology gets nothing new; a unit whose hosts are well is not moved; when
// more than a share of the fleet is lost at once, nothing is moved at all (Frozen says why).
package plan

import (
	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/recipe"
)

// Kinds of capacity, dearest promise first: they are used in this order.
const (
	Reserved = "reserved"
	OnDemand = "on_demand"
	Spot     = "spot"
)

// Host is a machine as the planner sees it.
type Host struct {
	ID        ids.ID
	Name      string
	Provider  string
	Region    string
	Kind      string // of capacity
	Network   string // hosts of one network reach each other's fabric addresses; "" = provider and region
	Failure   string // failure domain, such as a rack or a power feed; "" = the host itself
	GPUs      []wire.GPU
	Taken     []int // indexes of GPUs used by what is not planned
	Toolchain map[string]string
	Cordoned  bool
	Lost      bool               // its agent has not been heard of
	Leaving   bool               // a maintenance window begins soon, or it is being drained: what is there moves
	Links     map[ids.ID]float64 // measured Gbit/s to other hosts
}

// Demand is what a model wants.
type Demand struct {
	Model   ids.ID
	Name    string // of the model
	Release ids.ID
	Recipe  *recipe.Recipe
	Units   int
	Kinds   []string // of capacity that may be used; empty = all
	Regions []string // empty = all
	Spread  bool     // units over failure domains, as far as these go
	Weight  int      // who comes first when there is not enough for all
}

// Options bound the planner.
type Options struct {
	Spares     int     // GPUs kept free in every domain of at least SparesFrom GPUs
	SparesFrom int     // GPUs
	MaxLost    float64 // share of hosts lost at once above which nothing moves; 0 = DefaultMaxLost, 1 = never
	MaxSteps   int     // of branch and bound; counted, so that a plan does not depend on the machine; 0 = DefaultMaxSteps
	AllowUnmet bool    // place what fits and say what does not; else a demand unmet fails the whole plan
	Seed       string  // mixed into the ids of new units; such as the new plan's number

	// ID names the n-th new unit of a demand; nil derives it from demand, n, Seed and the parent's digest.
	ID func(d *Demand, n int) ids.ID
}

// Plan is immutable.
type Plan struct {
	Units  []Unit  `json:"units"`
	Unmet  []Unmet `json:"unmet,omitempty"`
	Moves  []Move  `json:"moves"` // against the parent
	Frozen string  `json:"frozen,omitempty"`
	Score  Score   `json:"score"` // of use only beside another of the same input
}

// Score is what was minimised, the first term first: a later one counts only where the earlier ones are equal. It is of what
// was placed anew; what stays is given.
type Score struct {
	Unplaced int64 `json:"unplaced"` // sum of the weights of units not placed
	Kind     int64 `json:"kind"`     // on-demand GPUs, and twice the spot GPUs
	Scatter  int64 `json:"scatter"`  // domains of each pool beyond its first
	Crowd    int64 `json:"crowd"`    // pairs of units of a demand with Spread that share a failure domain
	Stranded int64 `json:"stranded"` // GPUs free in started domains, and again those free on started hosts of larger domains
}

// Unit is one unit of a demand.
type Unit struct {
	ID      ids.ID `json:"id"` // stable from plan to plan while the unit stays
	Model   ids.ID `json:"model"`
	Release ids.ID `json:"release"`
	Name    string `json:"name"`
	Pools   []Pool `json:"pools"`
	Why     string `json:"why"`            // here, and not elsewhere
	Ends    string `json:"ends,omitempty"` // a unit that stays only until another has taken over, and why
	Heir    ids.ID `json:"heir,omitzero"`  // the unit that must serve before this one, which ends, is drained
}

// Pool is a unit's replicas of one role.
type Pool struct {
	Role     string    `json:"role"`
	Replicas []Replica `json:"replicas"`
}

// Replica is one engine.
type Replica struct {
	Domain string  `json:"domain"`           // scale-up domain; the host's id where that is the domain
	Shards []Shard `json:"shards"`           // by rank; more than one when the replica spans hosts
	Expert int     `json:"expert,omitempty"` // EP size when it is not the recipe's
}

// Shard is a replica's part on one host.
type Shard struct {
	Host ids.ID `json:"host"`
	GPUs []int  `json:"gpus"`
}

// Unmet is a demand, or a part of it, that could not be placed.
type Unmet struct {
	Model   ids.ID   `json:"model"`
	Release ids.ID   `json:"release"`
	Name    string   `json:"name"`
	Units   int      `json:"units"`
	Reasons []string `json:"reasons"` // by host or domain, the most common first, bounded
}

// Move is one difference to the parent.
type Move struct {
	Kind string `json:"kind"` // the Move… names
	Unit ids.ID `json:"unit"`
	Text string `json:"text"` // a sentence with its reason
}

// Kinds of moves.
const (
	MoveAdd     = "add"     // a new unit
	MoveRemove  = "remove"  // a unit that is stopped; what is added may need its GPUs, so it goes first
	MoveReplace = "replace" // a unit that ends: its heir takes over
	MoveRepair  = "repair"  // a unit that stays, with some of its replicas elsewhere or of another size: these are restarted
	MoveKeep    = "keep"    // a unit that was to end and stays; units that just stay are not listed
	MoveRefuse  = "refuse"  // what is wanted and newly cannot be placed; without a unit
)

// Size is how many GPUs a unit has.
func (u *Unit) Size() (n int) {
	for i := range u.Pools {
		for j := range u.Pools[i].Replicas {
			for _, s := range u.Pools[i].Replicas[j].Shards {
				n += len(s.GPUs)
			}
		}
	}
	return n
}
