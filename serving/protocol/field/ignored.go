package field

import "strconv"

// Limits of what is named to a client of what had no effect: it goes into a header.
const (
	maxIgnored      = 32
	maxIgnoredBytes = 2048
)

// others stands for what is not named any more.
const others = "and others"

// Ignored are the paths of what was accepted without effect, each once: those of all elements of an array are one
// (tools[].cache_control).
type Ignored []string

// Add names a member: place is all of its path before its own name.
func (g *Ignored) Add(place string, name []byte) {
	list := *g
	plain := isPlain(name)
	path := ""
	if !plain {
		path = place + strconv.QuoteToASCII(Clip(name))
	}
	size := 0
	for _, known := range list {
		if plain && len(known) == len(place)+len(name) && known[:len(place)] == place && known[len(place):] == string(name) || !plain && known == path {
			return
		}
		size += len(known)
	}
	switch {
	case len(list) > 0 && list[len(list)-1] == others:
		return
	case len(list) == maxIgnored || size+len(place)+len(name) > maxIgnoredBytes:
		path = others
	case plain:
		path = place + string(name)
	}
	*g = append(list, path)
}

// Name names something by its whole path.
func (g *Ignored) Name(path string) { g.Add("", []byte(path)) }

// isPlain reports whether a name can stand in a list in a header as it is.
func isPlain(name []byte) bool {
	if len(name) > 2*maxShown {
		return false
	}
	for _, c := range name {
		if c < ' ' || c >= 0x7f || c == ',' || c == '"' {
			return false
		}
	}
	return true
}
