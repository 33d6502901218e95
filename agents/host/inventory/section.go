package inventory

import "strings"

// Both tools write keys and values with a colon between them, in sections by indentation:
//
//	GPU 00000008:01:00.0
//	    Fabric
//	        State                             : Completed

// maxDepth is deeper than any tool goes.
const maxDepth = 8

// line is one line with the sections it is in.
type line struct {
	path  string // sections and key, joined by "/"
	value string
	plain bool // it has no value: a section's head
}

// lines reads indented text. fn is called in order.
func lines(text string, fn func(line)) {
	type section struct {
		indent int
		name   string
	}
	var open []section
	for raw := range strings.Lines(text) {
		raw = strings.TrimRight(strings.ReplaceAll(raw, "\t", "    "), " \r\n")
		body := strings.TrimLeft(raw, " ")
		if body == "" {
			continue
		}
		indent := len(raw) - len(body)
		for len(open) > 0 && open[len(open)-1].indent >= indent {
			open = open[:len(open)-1]
		}
		key, value, valued := cut(body)
		path := key
		for i := len(open) - 1; i >= 0; i-- {
			path = open[i].name + "/" + path
		}
		fn(line{path: path, value: value, plain: !valued})
		if !valued && len(open) < maxDepth {
			open = append(open, section{indent, key})
		}
	}
}

// cut splits "Key   : value". A section's head may hold colons itself, as in a PCI address, but not between blanks.
func cut(body string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(body, " :")
	if !ok {
		return body, "", false
	}
	return strings.TrimSpace(key), strings.TrimSpace(value), true
}

// known gives "" for what a tool does not know.
func known(value string) string {
	switch strings.Trim(strings.ToLower(value), "[]") {
	case "n/a", "na", "none", "not supported", "unknown error", "-":
		return ""
	}
	return value
}
