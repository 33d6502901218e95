package field

import (
	"slices"
	"strconv"
	"strings"
)

// Checks of single values, in the words of OpenAI's API.

// WantType says what a member must be.
func WantType(param, want string) error { return Invalid(param, "%s must be %s.", param, want) }

// OneOf checks that a value is one of some strings.
func OneOf(param string, v []byte, values ...string) error {
	if !IsString(v) || !slices.Contains(values, Text(v)) {
		return WantType(param, "one of "+strings.Join(values, ", "))
	}
	return nil
}

// Number checks that a value is a number within bounds.
func Number(param string, v []byte, low, high float64) error {
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return WantType(param, "a number")
	}
	if f < low || f > high {
		return Invalid(param, "%s must be between %g and %g.", param, low, high)
	}
	return nil
}

// Integer gives a whole number within bounds.
func Integer(param string, v []byte, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, WantType(param, "a whole number")
	}
	if n < low || n > high {
		return 0, Invalid(param, "%s must be between %d and %d.", param, low, high)
	}
	return n, nil
}
