package engine

import (
	"bytes"
	"encoding/json"
	"fmt"

	"millrace/serving/engine/scan"
)

// lengthMembers say how long an answer may be and how it comes: a prefill engine is told its own.
var lengthMembers = set("stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens")

// leg copies a body without some members and leaves it open for more.
func leg(dst, body []byte, without map[string]bool) []byte {
	dst = append(dst, '{')
	first := true
	m := scan.Object(body)
	for m.Next() {
		if without[string(m.Key)] {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, body[m.Start:m.End]...)
	}
	return dst
}

// oneWhole ends a prefill body: one token, and not streamed. The cap is also said by the name that the client used.
func oneWhole(dst, body []byte) []byte {
	dst = append(dst, `,"stream":false,"max_tokens":1`...)
	if member(body, "max_completion_tokens") != nil {
		dst = append(dst, `,"max_completion_tokens":1`...)
	}
	return dst
}

// withRequest replaces the request's id, so that both legs have one: an engine's own is derived from it.
func withRequest(dst []byte, name, id string) []byte {
	return scan.Quote(append(append(append(dst, `,"`...), name...), `":`...), id)
}

// prefilled reads what all engines' answers to a prefill have in common.
func prefilled(d Driver, answer []byte) (h Handed, finish string, choice []byte, err error) {
	if !json.Valid(answer) {
		return h, "", nil, fmt.Errorf("engine: a prefill was answered with what is no JSON: %s", quote(answer))
	}
	for e := scan.Array(member(answer, "choices")); e.Next(); {
		choice = bytes.Clone(e.Value)
		break
	}
	if choice == nil {
		return h, "", nil, fmt.Errorf("engine: a prefill was answered without a choice: %s", quote(answer))
	}
	finish = string(bytes.Trim(member(choice, "finish_reason"), `"`))
	if h.Report, err = d.Usage(answer); err == nil {
		h.Reported = true
	}
	switch finish {
	case "abort", "error", "cancelled":
		return h, finish, choice, fmt.Errorf("engine: the prefill ended by %q", finish)
	}
	return h, finish, choice, nil
}
