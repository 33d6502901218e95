package plan

// Limits, and what is used where an option is not said.
const (
	DefaultMaxLost  = 0.25    // share of hosts
	DefaultMaxSteps = 300_000 // domains looked at in the search
	minLost         = 2       // hosts; one alone is no mass loss
	maxReasons      = 8       // of a refusal
	maxNames        = 3       // of hosts in a reason
	maxChoices      = 24      // places tried for a unit at a node of the search
	maxFirsts       = 32      // domains tried as the first of a pool over several
	maxSearched     = 400     // units placed anew; with more, only the orders of the greedy pass are compared
)

func (o Options) defaults() Options {
	if o.MaxLost == 0 {
		o.MaxLost = DefaultMaxLost
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = DefaultMaxSteps
	}
	return o
}
