package messages

import (
	"bytes"
	"strings"

	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// billingHeader begins a system text by which Claude Code tells Anthropic whom to bill. It changes with every request, so
// that no prefix cache would ever hit, and says nothing to a model.
var billingHeader = []byte("x-anthropic-billing-header")

// The members of content blocks.
const (
	inType = iota
	inText
	inSource
	inID
	inName
	inInput
	inContent
	inThinking
	inSignature
	inUseID
	inIsError
	inTitle
	inContext
	inData
	inCaller
	inToolName
	numBlockMembers
)

var blockMembers = []string{"type", "text", "source", "id", "name", "input", "content", "thinking", "signature", "tool_use_id", "is_error", "title",
	"context", "data", "caller", "tool_name"}

// meaning are the members by which a block of a kind says something; others have no effect. The data of redacted thinking is
// left out with it, and the caller of a tool tells who made a call.
var meaning = map[string]uint32{
	"text":              1 << inText,
	"image":             1 << inSource,
	"tool_use":          1<<inID | 1<<inName | 1<<inInput | 1<<inCaller,
	"tool_result":       1<<inUseID | 1<<inIsError | 1<<inContent,
	"thinking":          1<<inThinking | 1<<inSignature,
	"redacted_thinking": 1 << inData,
	"document":          1<<inTitle | 1<<inContext | 1<<inSource,
	"search_result":     1<<inTitle | 1<<inSource | 1<<inContent,
	"tool_reference":    1 << inToolName,
}

// block is a content block: raw members, nil where there is none.
type block struct {
	kind []byte // the inside of type
	in   [numBlockMembers][]byte
}

// The places of blocks, as the names of what has no effect begin.
const (
	systemBlocks  = "system[]."
	messageBlocks = "messages[].content[]."
	resultBlocks  = "messages[].content[].content[]."
)

// readBlock reads a block's members; what has no effect here is named.
func (r *reader) readBlock(place string, raw []byte, b *block) (err error) {
	ignore := func(name []byte) { r.ignored.Add(place, name) }
	if err = field.Read(raw, blockMembers, b.in[:], ignore); err != nil {
		return err
	}
	if b.kind, err = needed("type", b.in[inType]); err != nil {
		return err
	}
	if means, known := meaning[string(b.kind)]; known {
		field.Unused(b.in[:], blockMembers, means|1<<inType, ignore)
	}
	return nil
}

var messageMembers = []string{"role", "content"}

// message reads one message into the history.
func (r *reader) message(i int, raw []byte) error {
	var in [2][]byte
	err := field.Read(raw, messageMembers, in[:], func(name []byte) { r.ignored.Add("messages[].", name) })
	from, content := in[0], in[1]
	who := roleNames[string(from)]
	switch {
	case err != nil:
		return err
	case from == nil:
		return required("role")
	case who == nobody:
		return wantOneOf("role", "user", "assistant", "system")
	case content == nil:
		return required("content")
	}
	at := spot{i, noBlock, noBlock}
	if who == system {
		return field.Within("content", r.system(messageBlocks, content, at))
	}
	r.turn(who, at)
	h := &r.history
	before := len(h.parts) + len(h.results)
	if field.IsString(content) {
		h.say(content[1 : len(content)-1])
	} else if !field.IsArray(content) {
		return field.Invalid("content", "It must be a string or an array of blocks.")
	} else if err := list(content, maxBlocks, func(k int, raw []byte) error {
		return r.block(who, raw, spot{i, k, noBlock})
	}); err != nil {
		return field.Within("content", err)
	}
	if who == user && len(h.parts)+len(h.results) == before {
		return field.Invalid("content", "It must not be empty.")
	}
	return nil
}

// system reads instructions: a string, or text blocks.
func (r *reader) system(place string, v []byte, at spot) error {
	r.turn(system, at)
	if field.IsString(v) {
		r.instruct(v[1 : len(v)-1])
		return nil
	}
	return list(v, maxBlocks, func(_ int, raw []byte) error {
		var b block
		if err := r.readBlock(place, raw, &b); err != nil {
			return err
		}
		if string(b.kind) != "text" {
			return field.Unsupported("type", "Instructions are text blocks, not %s.", field.Clip(b.kind))
		}
		t, err := textOf(&b)
		if err == nil {
			r.instruct(t)
		}
		return err
	})
}

func (r *reader) instruct(text []byte) {
	if bytes.HasPrefix(text, billingHeader) {
		r.ignored.Add("", billingHeader)
		return
	}
	r.history.say(text)
}

func textOf(b *block) ([]byte, error) {
	if b.in[inText] == nil {
		return nil, required("text")
	}
	return text("text", b.in[inText])
}

// block reads a user's or an assistant's block.
func (r *reader) block(who role, raw []byte, at spot) error {
	var b block
	if err := r.readBlock(messageBlocks, raw, &b); err != nil {
		return err
	}
	h := &r.history
	kind := string(b.kind)
	switch {
	case kind == "text":
		t, err := textOf(&b)
		h.say(t)
		return err
	case who == user && kind == "tool_result":
		return r.toolResult(&b, at)
	case who == assistant && kind == "tool_use":
		return r.toolUse(&b)
	case who == assistant && kind == "thinking":
		return r.thought(&b)
	case who == assistant && kind == "redacted_thinking":
		r.ignored.Add("", b.kind)
		return nil
	case who == user && kind == "image":
		url, err := r.imageURL(&b)
		if err == nil {
			h.image(url, at)
		}
		return err
	case who == user && (kind == "document" || kind == "search_result"):
		t, err := r.document(&b)
		h.say(t)
		return err
	case kind != "tool_result" && strings.HasSuffix(kind, "_tool_result"), kind == "server_tool_use", kind == "mcp_tool_use":
		r.ignored.Add("", b.kind) // what another service's tools did: no engine knows them
		return nil
	}
	return field.Unsupported("type", "A block of type %s cannot be used here.", field.Clip(b.kind))
}

func (h *history) image(url []byte, at spot) {
	h.parts = append(h.parts, part{text: url, image: true, at: at})
	h.more += imageBytes
}

// thought reads a thinking block: its text, or what we sealed when that is omitted. Signatures of others mean nothing here.
func (r *reader) thought(b *block) error {
	var t, signature []byte
	var err error
	if v := b.in[inThinking]; v != nil {
		if t, err = text("thinking", v); err != nil {
			return err
		}
	}
	if v := b.in[inSignature]; v != nil {
		if signature, err = text("signature", v); err != nil {
			return err
		}
	}
	if len(t) == 0 {
		t = r.Seal.Open(signature)
	}
	if len(t) > 0 {
		r.history.thought = append(r.history.thought, t)
		r.history.bytes += int64(len(t))
	}
	return nil
}

// imageTypes are what models take.
var imageTypes = map[string]bool{"image/jpeg": true, "image/png": true, "image/gif": true, "image/webp": true}

var sourceMembers = []string{"type", "media_type", "data", "url"}

// imageURL is the inside of an image's URL: the image itself, or where it is.
func (r *reader) imageURL(b *block) ([]byte, error) {
	source := b.in[inSource]
	if source == nil {
		return nil, required("source")
	}
	var in [4][]byte
	if err := field.Read(source, sourceMembers, in[:], func(name []byte) { r.ignored.Add("messages[].content[].source.", name) }); err != nil {
		return nil, field.Within("source", err)
	}
	url, err := r.readSource(in)
	return url, field.Within("source", err)
}

func (r *reader) readSource(in [4][]byte) ([]byte, error) {
	switch string(in[0]) {
	case `"url"`:
		url, err := needed("url", in[3])
		if err != nil {
			return nil, err
		}
		remote, err := protocol.CheckImage(in[3])
		if remote {
			r.history.remote++
		}
		return url, field.Within("url", err)
	case `"base64"`:
		m, err := needed("media_type", in[1])
		if err != nil {
			return nil, err
		}
		if !imageTypes[unescaped(m)] {
			return nil, wantOneOf("media_type", "image/jpeg", "image/png", "image/gif", "image/webp")
		}
		d, err := needed("data", in[2])
		if err != nil {
			return nil, err
		}
		out := append(append(make([]byte, 0, len(d)+32), "data:"...), unescaped(m)...)
		return append(append(out, ";base64,"...), d...), nil
	}
	return nil, field.Unsupported("type", "An image's source must be base64 or url.")
}
