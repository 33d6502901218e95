package messages

import (
	"bytes"
	"strings"
)

// billingHeader begins a system text by which Claude Code tells Anthropic whom to bill. It changes with every request, so
// that no prefix cache would ever hit, and says nothing to a model.
var billingHeader = []byte("x-anthropic-billing-header")

// block is a content block: raw members, nil where there is none.
type block struct {
	kind                                             []byte // the inside of type
	text, source, id, name, input, content, thinking []byte
	signature, useID, isError, title, context        []byte
}

// field is where a member goes; nil = it has no effect here.
func (b *block) field(name []byte) *[]byte {
	switch string(name) {
	case "type":
		return &b.kind
	case "text":
		return &b.text
	case "source":
		return &b.source
	case "id":
		return &b.id
	case "name", "tool_name":
		return &b.name
	case "input":
		return &b.input
	case "content":
		return &b.content
	case "thinking":
		return &b.thinking
	case "signature":
		return &b.signature
	case "tool_use_id":
		return &b.useID
	case "is_error":
		return &b.isError
	case "title":
		return &b.title
	case "context":
		return &b.context
	}
	return nil
}

// readBlock reads a block's members; what has no effect here is named.
func (r *reader) readBlock(raw []byte) (b block, err error) {
	err = object(raw, func(name, v []byte) error {
		if into := b.field(name); into != nil {
			*into = v
		} else if string(name) != "data" && string(name) != "caller" { // of redacted_thinking, and who made a call
			r.ignore(clip(name))
		}
		return nil
	})
	if err == nil {
		b.kind, err = needed("type", b.kind)
	}
	return b, err
}

// message reads one message into the history.
func (r *reader) message(i int, raw []byte) error {
	var from, content []byte
	err := object(raw, func(name, v []byte) error {
		switch string(name) {
		case "role":
			from = v
		case "content":
			content = v
		default:
			r.ignore("messages." + clip(name))
		}
		return nil
	})
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
	at := spot{i, noBlock}
	if who == system {
		return within("content", r.system(content, at))
	}
	r.turn(who, at)
	h := &r.history
	before := len(h.parts) + len(h.results)
	if isString(content) {
		h.say(content[1 : len(content)-1])
	} else if !isArray(content) {
		return invalid("content", "It must be a string or an array of blocks.")
	} else if err := list(content, maxBlocks, func(k int, raw []byte) error {
		return r.block(who, raw, spot{i, k})
	}); err != nil {
		return within("content", err)
	}
	if who == user && len(h.parts)+len(h.results) == before {
		return invalid("content", "It must not be empty.")
	}
	return nil
}

// system reads instructions: a string, or text blocks.
func (r *reader) system(v []byte, at spot) error {
	r.turn(system, at)
	if isString(v) {
		r.instruct(v[1 : len(v)-1])
		return nil
	}
	return list(v, maxBlocks, func(_ int, raw []byte) error {
		b, err := r.readBlock(raw)
		if err != nil {
			return err
		}
		if string(b.kind) != "text" {
			return unsupported("type", "Instructions are text blocks, not %s.", clip(b.kind))
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
		r.ignore(string(billingHeader))
		return
	}
	r.history.say(text)
}

func textOf(b *block) ([]byte, error) {
	if b.text == nil {
		return nil, required("text")
	}
	return text("text", b.text)
}

// block reads a user's or an assistant's block.
func (r *reader) block(who role, raw []byte, at spot) error {
	b, err := r.readBlock(raw)
	if err != nil {
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
		r.ignore(kind)
		return nil
	case who == user && kind == "image":
		url, err := imageURL(&b)
		if err == nil {
			h.image(url, at)
		}
		return err
	case who == user && (kind == "document" || kind == "search_result"):
		t, err := r.document(&b)
		h.say(t)
		return err
	case kind != "tool_result" && strings.HasSuffix(kind, "_tool_result"), kind == "server_tool_use", kind == "mcp_tool_use":
		r.ignore(clip(b.kind)) // what another service's tools did: no engine knows them
		return nil
	}
	return unsupported("type", "A block of type %s cannot be used here.", clip(b.kind))
}

func (h *history) image(url []byte, at spot) {
	h.parts = append(h.parts, part{text: url, image: true, at: at})
	h.bytes += imageBytes
}

// thought reads a thinking block: its text, or what we sealed when that is omitted. Signatures of others mean nothing here.
func (r *reader) thought(b *block) error {
	var t, signature []byte
	var err error
	if b.thinking != nil {
		if t, err = text("thinking", b.thinking); err != nil {
			return err
		}
	}
	if b.signature != nil {
		if signature, err = text("signature", b.signature); err != nil {
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

// imageURL is the inside of an image's URL: the image itself, or where it is.
func imageURL(b *block) ([]byte, error) {
	if b.source == nil {
		return nil, required("source")
	}
	var kind, media, data, url []byte
	err := object(b.source, func(name, v []byte) error {
		switch string(name) {
		case "type":
			kind = v
		case "media_type":
			media = v
		case "data":
			data = v
		case "url":
			url = v
		}
		return nil
	})
	if err != nil {
		return nil, within("source", err)
	}
	switch string(kind) {
	case `"url"`:
		u, err := needed("source.url", url)
		return u, err
	case `"base64"`:
		m, err := needed("source.media_type", media)
		if err != nil {
			return nil, err
		}
		if !imageTypes[unescaped(m)] {
			return nil, wantOneOf("source.media_type", "image/jpeg", "image/png", "image/gif", "image/webp")
		}
		d, err := needed("source.data", data)
		if err != nil {
			return nil, err
		}
		out := append(append(make([]byte, 0, len(d)+32), "data:"...), unescaped(m)...)
		return append(append(out, ";base64,"...), d...), nil
	}
	return nil, unsupported("source.type", "An image's source must be base64 or url.")
}
