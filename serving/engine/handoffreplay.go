package engine

import (
	"bytes"
	"strconv"

	"millrace/serving/engine/scan"
)

// Replayable reports whether an answer that broke off may be continued by another engine from what was said of it: sampling
// must not show where (temperature 0, or a seed), and nothing else may hold the output together, as a schema or log
// probabilities would.
func Replayable(body []byte) bool {
	greedy, seeded := false, false
	m := scan.Object(body)
	for m.Next() {
		switch key := string(m.Key); {
		case key == "temperature":
			f, err := strconv.ParseFloat(string(m.Value), 64)
			greedy = err == nil && f == 0
		case key == "seed":
			seeded = !absent(m.Value)
		case key == "response_format":
			if !absent(m.Value) && string(member(m.Value, "type")) != `"text"` {
				return false
			}
		case constrains(m.Key) && !absent(m.Value), key == "logprobs" && !absent(m.Value) && string(m.Value) != "false",
			key == "continue_final_message" && string(m.Value) == "true":
			return false
		case key == "prompt" && m.Value[0] != '"':
			return false
		}
	}
	return greedy || seeded
}

// Resume makes the body of the request that goes on where an answer broke off: what was said is the beginning of the last
// message, or the end of the prompt; so many tokens fewer are left. False: none are.
func Resume(body, said []byte, generated int64) (resumed []byte, ok bool) {
	dst := leg(nil, body, resumeAgain)
	m := scan.Object(body)
	for m.Next() {
		switch key := string(m.Key); key {
		case "messages":
			list := bytes.TrimRight(m.Value, "] \t\r\n")
			dst = append(append(append(dst, `,"messages":`...), list...), `,{"role":"assistant","content":`...)
			dst = append(scan.Quote(dst, string(said)), `}],"continue_final_message":true,"add_generation_prompt":false`...)
		case "prompt":
			text, _ := scan.Text(nil, m.Value)
			dst = scan.Quote(append(dst, `,"prompt":`...), string(append(text, said...)))
		case "max_tokens", "max_completion_tokens", "min_tokens":
			n, whole := wholeNumber(m.Value)
			if absent(m.Value) || !whole {
				continue
			}
			if n -= generated; n < 1 && key != "min_tokens" {
				return nil, false
			}
			dst = append(append(append(dst, `,"`...), key...), `":`...)
			dst = strconv.AppendInt(dst, max(n, 0), 10)
		}
	}
	if len(dst) > 1 && dst[1] == ',' {
		dst = append(dst[:1], dst[2:]...)
	}
	return append(dst, '}'), true
}

// resumeAgain are the members that a resumed request says anew.
var resumeAgain = set("messages", "prompt", "max_tokens", "max_completion_tokens", "min_tokens", "continue_final_message", "add_generation_prompt")

// Said appends what a chunk says of its answer; false when it says anything but plain text, which nobody could continue.
func Said(dst, chunk []byte) ([]byte, bool) {
	for e := scan.Array(member(chunk, "choices")); e.Next(); {
		for m := scan.Object(e.Value); m.Next(); {
			switch {
			case string(m.Key) == "text":
				dst, _ = scan.Text(dst, m.Value)
			case string(m.Key) == "delta" && m.Value[0] == '{':
				var plain bool
				if dst, plain = saidDelta(dst, m.Value); !plain {
					return dst, false
				}
			}
		}
	}
	return dst, true
}

func saidDelta(dst, delta []byte) ([]byte, bool) {
	for m := scan.Object(delta); m.Next(); {
		empty := absent(m.Value) || string(m.Value) == `""` || string(m.Value) == "[]"
		switch string(m.Key) {
		case "content":
			dst, _ = scan.Text(dst, m.Value)
		case "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call":
			if !empty {
				return dst, false
			}
		}
	}
	return dst, true
}

// AsChunk turns a whole answer into the one chunk of a stream that says the same.
func AsChunk(answer []byte) []byte {
	return keepMembers(nil, answer, func(key string, v []byte) []byte {
		if key != "choices" {
			return v
		}
		out := []byte{'['}
		for e := scan.Array(v); e.Next(); {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, '{')
			for m := scan.Object(e.Value); m.Next(); {
				if len(out) > 1 && out[len(out)-1] != '{' {
					out = append(out, ',')
				}
				name := string(m.Key)
				if name == "message" {
					name = "delta"
				}
				out = append(append(scan.Quote(out, name), ':'), m.Value...)
			}
			out = append(out, '}')
		}
		return append(out, ']')
	})
}
