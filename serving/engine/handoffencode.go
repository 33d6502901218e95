package engine

import (
	"fmt"

	"millrace/serving/engine/scan"
)

// Encoding is how encoders take a prompt's images before its prefill: one leg for each item.
type Encoding interface {
	// Encode gives a body for each media item of a chat body, with that item and no text, at most limit of them; false when
	// there are more.
	Encode(body []byte, id string, limit int) ([][]byte, bool)
	// Encoded puts what the encoders answered together: a member for P's body, nil when there is none.
	Encoded(answers [][]byte) []byte
}

// Encode implements Encoding.
func (vllm) Encode(body []byte, id string, limit int) ([][]byte, bool) {
	return encodeLegs(body, id, limit)
}

// Encode implements Encoding.
func (simulated) Encode(body []byte, id string, limit int) ([][]byte, bool) {
	return encodeLegs(body, id, limit)
}

// Encoded implements Encoding.
func (vllm) Encoded(answers [][]byte) []byte { return encoded(answers) }

// Encoded implements Encoding.
func (simulated) Encoded(answers [][]byte) []byte { return encoded(answers) }

// EncodeID names the leg of an item.
func EncodeID(request string, item int) string { return fmt.Sprintf("%s-enc-%d", request, item) }

var encodeWithout = set("messages", "tools", "tool_choice", "response_format", "structured_outputs", "stream", "stream_options",
	"max_tokens", "max_completion_tokens", "min_tokens", "request_id", "stop", "logprobs", "top_logprobs", "n")

func encodeLegs(body []byte, id string, limit int) (legs [][]byte, fits bool) {
	items := mediaItems(body)
	if len(items) > limit {
		return nil, false
	}
	for i, item := range items {
		b := append(leg(nil, body, encodeWithout), `,"messages":[{"role":"user","content":[`...)
		b = append(append(b, item...), `]}],"stream":false,"max_tokens":1`...)
		legs = append(legs, append(withRequest(b, "request_id", EncodeID(id, i)), '}'))
	}
	return legs, true
}

// mediaItems are the content parts of a chat that are no text, in their order.
func mediaItems(body []byte) (items [][]byte) {
	for e := scan.Array(member(body, "messages")); e.Next(); {
		content := member(e.Value, "content")
		if content == nil || content[0] != '[' {
			continue
		}
		for p := scan.Array(content); p.Next(); {
			if kind := member(p.Value, "type"); kind != nil && !textual(kind) {
				items = append(items, p.Value)
			}
		}
	}
	return items
}

// encoded merges the maps of all answers into one.
func encoded(answers [][]byte) []byte {
	out := []byte(`,"ec_transfer_params":{`)
	empty := len(out)
	for _, answer := range answers {
		m := scan.Object(member(answer, "ec_transfer_params"))
		for m.Next() {
			if len(out) > empty {
				out = append(out, ',')
			}
			out = append(append(scan.Quote(out, string(m.Key)), ':'), m.Value...)
		}
	}
	if len(out) == empty {
		return nil
	}
	return append(out, '}')
}
