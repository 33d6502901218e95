package engine

import "millrace/serving/engine/scan"

// What a chat template and media can add to a prompt, in tokens. They are bounds for holds, not estimates: real prompts
// stay below them, and the engine's own count is what is charged.
const (
	// TemplateTokens is what templates put around all messages: begin marks, default system texts, the date.
	TemplateTokens = 256
	// ToolTemplateTokens is what templates add once when there are tools: how to call them.
	ToolTemplateTokens = 512
	// MessageTokens is what templates put around one message: role and end marks.
	MessageTokens = 16
	// MediaTokens bounds one image, audio or video part: vision models cut an image into at most 16 K patches.
	MediaTokens = 16 << 10
	// schemaGrowth is how much longer templates print tools and calls than compact JSON: ", " for ",", ": " for ":".
	schemaGrowth = 2
)

// PromptBound is an upper bound of the prompt tokens of a valid Chat Completions body, or of one for text or embeddings,
// without a tokenizer: a token is at least one byte of text. context > 0 caps each prompt of it, in tokens: an engine
// refuses longer ones.
func PromptBound(body []byte, context int64) int64 {
	n, prompts := int64(TemplateTokens), int64(1)
	m := scan.Object(body)
	for m.Next() {
		switch string(m.Key) {
		case "messages":
			n += messagesBound(m.Value)
		case "prompt", "input": // a token id takes more bytes than one
			n += int64(len(m.Value))
			prompts = max(promptsIn(m.Value), prompts)
		case "tools", "functions":
			n += ToolTemplateTokens + schemaGrowth*int64(len(m.Value))
		case "response_format", "structured_outputs", "chat_template_kwargs", "documents", "tool_choice":
			n += schemaGrowth * int64(len(m.Value))
		}
	}
	if context > 0 {
		n = min(n, prompts*context)
	}
	return n
}

// promptsIn is how many prompts a list of texts, or of lists of token ids, holds. A list of token ids is one.
func promptsIn(raw []byte) (n int64) {
	if raw[0] != '[' {
		return 1
	}
	e := scan.Array(raw)
	for e.Next() {
		if e.Value[0] == '"' || e.Value[0] == '[' {
			n++
		}
	}
	return n
}

func messagesBound(raw []byte) (n int64) {
	e := scan.Array(raw)
	for e.Next() {
		n += MessageTokens + int64(len(e.Value))
		m := scan.Object(e.Value)
		for m.Next() {
			switch {
			case string(m.Key) == "tool_calls":
				n += (schemaGrowth - 1) * int64(len(m.Value))
			case string(m.Key) == "content" && m.Value[0] == '[':
				n += partsBound(m.Value) - int64(len(m.Value))
			}
		}
	}
	return n
}

func partsBound(raw []byte) (n int64) {
	e := scan.Array(raw)
	for e.Next() {
		n += partBound(e.Value)
	}
	return n
}

// partBound counts a content part's own bytes, and MediaTokens in the place of what media fields hold. Engines differ in
// whether the type or the field decides what a part is, so a part that is both text and media counts as both: nobody can
// hide text behind an image.
func partBound(part []byte) int64 {
	n, media := int64(len(part)), false
	m := scan.Object(part)
	for m.Next() {
		switch string(m.Key) {
		case "type":
			media = media || !textual(m.Value)
		case "image_url", "input_audio", "video_url", "audio_url", "image", "image_pil", "image_embeds", "file":
			media = true
			n -= int64(len(m.Value))
		}
	}
	if media {
		n += MediaTokens
	}
	return n
}

// textual tells whether a part's type is text of some kind.
func textual(kind []byte) bool {
	switch string(kind) {
	case `"text"`, `"refusal"`, `"thinking"`, `"input_text"`, `"output_text"`:
		return true
	}
	return false
}
