package topup

import (
	"maps"
	"slices"
)

// EventTypes are the types that the payment provider must be asked to send.
func EventTypes() []string { return slices.Sorted(maps.Keys(handled)) }
