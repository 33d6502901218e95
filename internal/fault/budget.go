package fault

import "time"

// Budget is the budget that refused: which it is, what it allows, and what of it is left. Amounts are decimal USD.
type Budget struct {
	Scope        string // balance, org, project or key
	LimitUSD     string // "" for a balance
	RemainingUSD string
	Reset        time.Time // when its period begins anew; zero = never
}

// WithBudget says which budget refused, and returns the fault.
func (f *Fault) WithBudget(b Budget) *Fault {
	f.Budget = &b
	return f
}
