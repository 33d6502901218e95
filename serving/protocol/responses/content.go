package responses

import (
	"bytes"

	"millrace/serving/engine/scan"
)

// content is what a message or a tool's output holds, as Chat Completions has it.
type content struct {
	role   string // user, assistant, system, developer, or tool
	text   []byte // all text, as the inside of a string
	own    bool   // text is memory of its own
	images int
	mixed  bool   // parts are written: there are images
	parts  []byte // elements of the array of parts; of a tool's output its images alone
}

// read takes in a string or an array of parts.
func (c *content) read(v []byte) error {
	const name = "content"
	if isString(v) {
		c.text = inside(v)
		return nil
	}
	if !isArray(v) {
		return wantType(name, "a string or an array of content parts")
	}
	return c.list(name, v)
}

func (c *content) list(name string, v []byte) error {
	for {
		e := scan.Array(v)
		for i := 0; e.Next(); i++ {
			if i == maxParts {
				return invalid(name, "There are more than %d content parts.", maxParts)
			}
			if err := c.part(e.Value); err != nil {
				return within(at(name, i), err)
			}
		}
		if c.images == 0 || c.mixed {
			return nil
		}
		*c = content{role: c.role, mixed: true} // once more, with parts: few messages need them
	}
}

func (c *content) part(v []byte) error {
	f, err := fields(v, "type", "text", "refusal")
	if err != nil {
		return err
	}
	kind := text(f[0])
	switch model := c.role == "assistant"; {
	case kind == "refusal" && model:
		return c.say("refusal", f[2], "")
	case kind == "output_text" && model:
		return c.say("text", f[1], "")
	case kind == "input_text" && !model, kind == "output_text" && c.role == "tool":
		return c.say("text", f[1], `\n\n`)
	case kind == "input_image" && (c.role == "user" || c.role == "tool"):
		return c.picture(v)
	case kind == "input_file" || kind == "input_audio" || kind == "input_video" || kind == "input_image":
		return unsupported("type", "Content parts of type %s are not supported in a message of the %s.", kind, c.role)
	case model:
		return wantType("type", "one of output_text, refusal")
	}
	return wantType("type", "one of input_text, input_image")
}

func (c *content) say(name string, v []byte, separator string) error {
	if !isString(v) {
		return wantType(name, "a string")
	}
	switch {
	case len(c.text) == 0:
		c.text = inside(v)
	case !c.own: // the first text is the request's own bytes
		c.text, c.own = join(c.text[:len(c.text):len(c.text)], inside(v), separator), true
	default:
		c.text = join(c.text, inside(v), separator)
	}
	if c.mixed && c.role == "user" {
		c.add(append(append([]byte(`{"type":"text","text":`), v...), '}'))
	}
	return nil
}

func (c *content) add(part []byte) {
	if len(c.parts) > 0 {
		c.parts = append(c.parts, ',')
	}
	c.parts = append(c.parts, part...)
}

func (c *content) picture(v []byte) error {
	f, err := fields(v, "image_url", "detail", "file_id")
	switch {
	case err != nil:
		return err
	case f[2] != nil:
		return unsupported("file_id", "Images are not taken by file_id: send image_url.")
	case !isString(f[0]) || len(f[0]) <= len(`""`):
		return wantType("image_url", "a URL, or a data: URL with the image itself")
	}
	detail := ""
	if f[1] != nil {
		if err := oneOf("detail", f[1], "low", "high", "auto", "original"); err != nil {
			return err
		}
		if detail = text(f[1]); detail != "low" && detail != "high" {
			detail = ""
		}
	}
	if c.images++; !c.mixed {
		return nil
	}
	part := append([]byte(`{"type":"image_url","image_url":{"url":`), f[0]...)
	if detail != "" {
		part = append(append(append(part, `,"detail":"`...), detail...), '"')
	}
	c.add(append(part, `}}`...))
	return nil
}

// appendTo appends a string where text is all, else the array of parts.
func (c *content) appendTo(dst []byte) []byte {
	if c.images == 0 {
		return append(append(append(dst, '"'), c.text...), '"')
	}
	return append(append(append(dst, '['), c.parts...), ']')
}

// ---- items of the model's turn and of tools ------------------------------------------------------------------------

// reasoning takes the text of the item's content, else what we sealed, else its summary.
func (d *dialogue) reasoning(raw []byte) error {
	f, err := fields(raw, "content", "encrypted_content", "summary")
	if err != nil {
		return err
	}
	said, err := texts("content", f[0], "reasoning_text", "text")
	if err != nil {
		return err
	}
	if len(said) == 0 {
		said = d.before.open(f[1])
	}
	summary, err := texts("summary", f[2], "summary_text")
	if err != nil {
		return err
	}
	if len(said) == 0 {
		said = summary
	}
	d.say(&d.turn.reasoning, said, `\n\n`)
	return nil
}

// texts joins the texts of a list of parts.
func texts(name string, v []byte, kinds ...string) (joined []byte, err error) {
	if v == nil {
		return nil, nil
	}
	if !isArray(v) {
		return nil, wantType(name, "an array")
	}
	e := scan.Array(v)
	for i := 0; e.Next(); i++ {
		f, err := fields(e.Value, "type", "text")
		if err != nil {
			return nil, within(at(name, i), err)
		}
		if err := oneOf("type", f[0], kinds...); err != nil {
			return nil, within(at(name, i), err)
		}
		if !isString(f[1]) {
			return nil, within(at(name, i), wantType("text", "a string"))
		}
		joined = join(joined, inside(f[1]), `\n\n`)
	}
	return joined, nil
}

func (d *dialogue) call(raw []byte, custom bool) error {
	argument := "arguments"
	if custom {
		argument = "input"
	}
	f, err := fields(raw, "call_id", "name", argument, "namespace")
	if err != nil {
		return err
	}
	for i, name := range []string{"call_id", "name", argument} {
		if !isString(f[i]) || i < 2 && len(f[i]) <= len(`""`) {
			return wantType(name, "a string")
		}
	}
	b := append(append([]byte(`{"id":`), f[0]...), `,"type":"function","function":{"name":`...)
	b = append(scan.Quote(b, d.q.tools.flatOf(text(f[3]), text(f[1]))), `,"arguments":`...)
	if custom {
		b = scan.Quote(b, `{"input":`+string(f[2])+`}`)
	} else {
		b = append(b, f[2]...)
	}
	d.say(&d.turn.calls, append(b, `}}`...), `,`)
	if d.callIDs == nil {
		d.callIDs = map[string]bool{}
	}
	d.callIDs[text(f[0])] = true
	return nil
}

func (d *dialogue) output(raw []byte) error {
	f, err := fields(raw, "call_id", "output")
	if err != nil {
		return err
	}
	if !isString(f[0]) {
		return wantType("call_id", "the call_id of the call that it answers")
	}
	if !d.callIDs[text(f[0])] && !d.loose {
		return invalid("call_id", "No tool call found for function call output with call_id %s.", clip(text(f[0])))
	}
	c := content{role: "tool"}
	switch v := f[1]; {
	case isString(v):
		c.text = inside(v)
	case isArray(v):
		if err := c.list("output", v); err != nil {
			return err
		}
	default:
		return wantType("output", "a string or an array of content parts")
	}
	images := d.images
	d.images = nil
	d.endTurn()
	d.put(`{"role":"tool","tool_call_id":`, func(b []byte) []byte {
		b = append(append(b, f[0]...), `,"content":"`...)
		return append(append(b, c.text...), '"')
	}, `}`)
	if d.images = images; c.images > 0 {
		d.images = join(d.images, c.parts, ",")
	}
	return nil
}

// compaction takes what an earlier compaction of ours wrote.
func (d *dialogue) compaction(raw []byte) error {
	f, err := fields(raw, "encrypted_content")
	if err != nil {
		return err
	}
	plain := d.before.open(f[0])
	if !bytes.HasPrefix(plain, []byte(compactionMark)) {
		return invalid("encrypted_content", "This compaction was not made here, or not for this organization.").WithCode("invalid_encrypted_content")
	}
	d.begin()
	d.put(`{"role":"user","content":"`, func(b []byte) []byte {
		return append(append(b, compactionIntro...), plain[len(compactionMark):]...)
	}, `"}`)
	return nil
}

// What is sealed in a compaction item begins with the mark; the intro, the inside of a string, tells the model what it reads.
const (
	compactionMark  = "compaction:"
	compactionIntro = "This is a summary of the conversation so far:\\n\\n"
)
