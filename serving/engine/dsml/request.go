package dsml

import (
	"strconv"

	"millrace/serving/engine/scan"
)

// Request is what a driver decides about one request.
type Request struct {
	Model     string // the name the engine knows
	MaxTokens int64  // the cap on generated tokens; 0 = none
	ID        string // for the engine's logs; "" = none
}

// sampling are the members of a chat body that reach the engine as they are.
var sampling = map[string]bool{
	"temperature": true, "top_p": true, "top_k": true, "min_p": true, "frequency_penalty": true, "presence_penalty": true,
	"repetition_penalty": true, "seed": true, "logit_bias": true, "n": true, "min_tokens": true, "response_format": true,
}

// AppendRequest appends the body that the process beside the engine is sent: the prompt's segments, images, and how to
// sample. Stop sequences are not sent: they end content only, which the engine cannot tell from other text. docs/raw-profile.md
// is the contract.
func (p *Prompt) AppendRequest(dst, chatBody []byte, r Request) []byte {
	dst = appendString(append(dst, `{"model":`...), r.Model)
	if r.ID != "" {
		dst = appendString(append(dst, `,"request_id":`...), r.ID)
	}
	dst = p.appendSegments(append(dst, `,"segments":[`...))
	dst = append(dst, `],"images":[`...)
	for i, address := range p.Images {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, address)
	}
	dst = append(dst, ']')
	m := scan.Object(chatBody)
	for m.Next() {
		if sampling[string(m.Key)] && string(m.Value) != "null" {
			dst = appendString(append(dst, ','), string(m.Key))
			dst = append(append(dst, ':'), m.Value...)
		}
	}
	if r.MaxTokens > 0 {
		dst = strconv.AppendInt(append(dst, `,"max_tokens":`...), r.MaxTokens, 10)
	}
	return append(dst, `,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`...)
}

func (p *Prompt) appendSegments(dst []byte) []byte {
	for i, s := range p.Segments {
		if i > 0 {
			dst = append(dst, ',')
		}
		if s.Special {
			dst = append(dst, `{"special":`...)
		} else {
			dst = append(dst, `{"text":`...)
		}
		dst = append(appendString(dst, s.Text), '}')
	}
	return dst
}
