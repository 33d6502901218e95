package messages

import (
	"bytes"
	"strings"

	"millrace/serving/protocol/field"
)

// toolUse reads a call of the assistant's.
func (r *reader) toolUse(b *block) error {
	h := &r.history
	id, err := needed("id", b.in[inID])
	if err != nil {
		return err
	}
	name, err := needed("name", b.in[inName])
	if err != nil {
		return err
	}
	input := b.in[inInput]
	if input == nil {
		input = []byte("{}")
	}
	if !field.IsObject(input) {
		return field.Invalid("input", "It must be an object.")
	}
	if _, used := h.open[string(id)]; used {
		return field.Invalid("id", "The id %s is another tool_use block's.", field.Clip(id))
	}
	if h.open == nil {
		h.open = map[string]bool{}
	}
	h.open[string(id)] = true
	h.calls = append(h.calls, call{id, name, input})
	h.bytes += int64(len(name) + len(input))
	return nil
}

// toolResult reads what a call came to. Chat's tools answer with text alone: images follow as the user's.
func (r *reader) toolResult(b *block, at spot) error {
	h := &r.history
	id, err := needed("tool_use_id", b.in[inUseID])
	if err != nil {
		return err
	}
	if !h.open[string(id)] {
		return field.Invalid("tool_use_id", "The id %s is of no tool_use block in the assistant's message before, or has its result already.", field.Clip(id))
	}
	h.open[string(id)] = false
	failed := false
	if v := b.in[inIsError]; v != nil {
		if failed, err = boolean("is_error", v); err != nil {
			return err
		}
	}
	texts, images, err := r.resultContent(b.in[inContent], at)
	if err != nil {
		return field.Within("content", err)
	}
	if len(images) > 0 {
		texts = append(texts, []byte("(The images of this result follow.)"))
	}
	joined := join(texts)
	if failed {
		joined = markError(joined)
	}
	h.results = append(h.results, result{id: id, text: joined, at: at})
	h.bytes += int64(len(joined))
	for _, p := range images {
		h.image(p.text, p.at)
	}
	return nil
}

// join makes one text of several; one alone stays where it is.
func join(texts [][]byte) []byte {
	if len(texts) == 1 {
		return texts[0]
	}
	return bytes.Join(texts, blockGap)
}

// maxErrorMark is how far into a result its own word for an error is looked for, in bytes.
const maxErrorMark = 64

// markError says that a tool failed, where its result does not say so itself: chat has no member for it.
func markError(text []byte) []byte {
	if strings.Contains(strings.ToLower(string(text[:min(len(text), maxErrorMark)])), "error") {
		return text
	}
	return append([]byte("Error: "), text...)
}

// resultContent reads a result's content: nothing, a string or blocks.
func (r *reader) resultContent(v []byte, at spot) (texts [][]byte, images []part, err error) {
	switch {
	case v == nil:
		return nil, nil, nil
	case field.IsString(v):
		return [][]byte{v[1 : len(v)-1]}, nil, nil
	}
	err = list(v, maxBlocks, func(i int, raw []byte) error {
		var b block
		if err := r.readBlock(resultBlocks, raw, &b); err != nil {
			return err
		}
		switch kind := string(b.kind); kind {
		case "text":
			t, err := textOf(&b)
			if len(t) > 0 {
				texts = append(texts, t)
			}
			return err
		case "image":
			url, err := r.imageURL(&b)
			images = append(images, part{text: url, at: spot{at.message, at.block, i}})
			return err
		case "document", "search_result":
			t, err := r.document(&b)
			texts = append(texts, t)
			return err
		case "tool_reference": // every tool is always in the prompt: naming it is enough
			name, err := needed("tool_name", b.in[inToolName])
			texts = append(texts, append([]byte("Tool found: "), name...))
			return err
		}
		return field.Unsupported("type", "A block of type %s cannot be used in a tool's result.", field.Clip(b.kind))
	})
	return texts, images, err
}

// searchContent reads what a search result says: text only, so that blocks are never in one another without end.
func (r *reader) searchContent(v []byte) (texts [][]byte, err error) {
	switch {
	case v == nil:
		return nil, nil
	case field.IsString(v):
		return [][]byte{v[1 : len(v)-1]}, nil
	}
	err = list(v, maxBlocks, func(_ int, raw []byte) error {
		var b block
		if err := r.readBlock(resultBlocks, raw, &b); err != nil {
			return err
		}
		if string(b.kind) != "text" {
			return field.Unsupported("type", "A search result holds text only, not %s.", field.Clip(b.kind))
		}
		t, err := textOf(&b)
		if len(t) > 0 {
			texts = append(texts, t)
		}
		return err
	})
	return texts, err
}

// document makes text of a document that is text, or of a search result: its title, where it is from, what it says.
func (r *reader) document(b *block) ([]byte, error) {
	var pieces [][]byte
	add := func(name string, v []byte) error {
		if v == nil {
			return nil
		}
		t, err := text(name, v)
		if len(t) > 0 {
			pieces = append(pieces, t)
		}
		return err
	}
	if err := add("title", b.in[inTitle]); err != nil {
		return nil, err
	}
	if string(b.kind) == "search_result" {
		if err := add("source", b.in[inSource]); err != nil {
			return nil, err
		}
		texts, err := r.searchContent(b.in[inContent])
		return bytes.Join(append(pieces, texts...), blockGap), field.Within("content", err)
	}
	if err := add("context", b.in[inContext]); err != nil {
		return nil, err
	}
	if b.in[inSource] == nil {
		return nil, required("source")
	}
	var in [4][]byte
	if err := field.Read(b.in[inSource], sourceMembers, in[:], func(name []byte) { r.ignored.Add("messages[].content[].source.", name) }); err != nil {
		return nil, field.Within("source", err)
	}
	if string(in[0]) != `"text"` {
		return nil, field.Unsupported("source.type", "Only documents of type text are read here: send the text of this one, or pictures of its pages.")
	}
	t, err := needed("source.data", in[2])
	return bytes.Join(append(pieces, t), blockGap), err
}
