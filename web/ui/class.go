package ui

import "millrace/internal/usage"

// ClassName is how a token class reads on a page.
func ClassName(c usage.Class) string {
	switch c {
	case usage.Cached:
		return "Cached input"
	case usage.CacheWrite:
		return "Cache write"
	case usage.Image:
		return "Image input"
	case usage.Audio:
		return "Audio input"
	case usage.Output:
		return "Output"
	case usage.Reasoning:
		return "Reasoning"
	case usage.Requests:
		return "Per request"
	}
	return "Input"
}

// PricedClasses are the classes a price page shows, in reading order.
var PricedClasses = []usage.Class{usage.Input, usage.Cached, usage.CacheWrite, usage.Output, usage.Reasoning, usage.Image, usage.Audio, usage.Requests}
