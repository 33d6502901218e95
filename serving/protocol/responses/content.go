package responses

import (
	"bytes"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// content is what a message or a tool's output holds, as Chat Completions has it.
type content struct {
	d        *dialogue
	role     string // user, assistant, system (a developer's too), or tool
	text     []byte // all text, as the inside of a string
	own      bool   // text is memory of its own
	images   int
	mixed    bool      // parts are written: there are images
	parts    []byte    // elements of the array of parts; of a tool's output its images alone
	count    int       // of parts
	pictures []picture // among them
}

// read takes in a string or an array of parts.
func (c *content) read(v []byte) error {
	const name = "content"
	if field.IsString(v) {
		c.text = field.Inside(v)
		return nil
	}
	if !field.IsArray(v) {
		return field.WantType(name, "a string or an array of content parts")
	}
	return c.list(name, v)
}

func (c *content) list(name string, v []byte) error {
	for {
		e := scan.Array(v)
		for i := 0; e.Next(); i++ {
			if i == maxParts {
				return field.Invalid(name, "There are more than %d content parts.", maxParts)
			}
			if err := c.part(name, i, e.Value); err != nil {
				return field.Within(field.At(name, i), err)
			}
		}
		if c.images == 0 || c.mixed {
			return nil
		}
		*c = content{d: c.d, role: c.role, mixed: true} // once more, with parts: few messages need them
	}
}

// The members of content parts.
const (
	inPartType = iota
	inPartText
	inRefusal
	inImage
	inDetail
	inFile
	inAnnotations
	inLogprobs
	numPartMembers
)

var partMembers = []string{"type", "text", "refusal", "image_url", "detail", "file_id", "annotations", "logprobs"}

// silentInParts are the members with which the parts of answers come back, and that say nothing to a model.
const silentInParts = 1<<inPartType | 1<<inAnnotations | 1<<inLogprobs

// partMeaning are the members by which a part of a kind says something; others have no effect.
var partMeaning = map[string]uint32{
	`"input_text"`: 1 << inPartText, `"output_text"`: 1 << inPartText, `"refusal"`: 1 << inRefusal,
	`"input_image"`: 1<<inImage | 1<<inDetail | 1<<inFile,
}

func (c *content) part(list string, i int, v []byte) error {
	var f [numPartMembers][]byte
	if err := c.d.fields("input[]."+list+"[].", v, partMembers, f[:]); err != nil {
		return err
	}
	kind := string(f[inPartType])
	if means, known := partMeaning[kind]; known {
		c.d.unused("input[]."+list+"[].", f[:], partMembers, means|silentInParts)
	}
	switch model := c.role == "assistant"; {
	case kind == `"refusal"` && model:
		return c.say("refusal", f[inRefusal], "")
	case kind == `"output_text"` && model:
		return c.say("text", f[inPartText], "")
	case kind == `"input_text"` && !model, kind == `"output_text"` && c.role == "tool":
		return c.say("text", f[inPartText], `\n\n`)
	case kind == `"input_image"` && (c.role == "user" || c.role == "tool"):
		return c.picture(f[inImage], f[inDetail], f[inFile], picture{item: c.d.item, at: i, list: list})
	case kind == `"input_file"` || kind == `"input_audio"` || kind == `"input_video"` || kind == `"input_image"`:
		return field.Unsupported("type", "Content parts of type %s are not supported in a message of the %s.", field.Text(f[inPartType]), c.role)
	case model:
		return field.WantType("type", "one of output_text, refusal")
	}
	return field.WantType("type", "one of input_text, input_image")
}

func (c *content) say(name string, v []byte, separator string) error {
	if !field.IsString(v) {
		return field.WantType(name, "a string")
	}
	switch {
	case len(c.text) == 0:
		c.text = field.Inside(v)
	case !c.own: // the first text is the request's own bytes
		c.text, c.own = join(c.text[:len(c.text):len(c.text)], field.Inside(v), separator), true
	default:
		c.text = join(c.text, field.Inside(v), separator)
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
	c.count++
}

func (c *content) picture(url, size, file []byte, p picture) error {
	switch {
	case file != nil:
		return field.Unsupported("file_id", "Images are not taken by file_id: send image_url.")
	case !field.IsString(url) || len(url) <= len(`""`):
		return field.WantType("image_url", "a URL, or a data: URL with the image itself")
	}
	remote, err := protocol.CheckImage(url)
	if err != nil {
		return field.Within("image_url", err)
	}
	detail := ""
	if size != nil {
		if err := field.OneOf("detail", size, "low", "high", "auto", "original"); err != nil {
			return err
		}
		switch detail = field.Text(size); detail {
		case "original":
			c.d.ignore("input[].content[].", []byte("detail (original)"))
			detail = ""
		case "auto":
			detail = ""
		}
	}
	if c.images++; !c.mixed {
		return nil
	}
	p.part, p.remote = c.count, remote
	c.pictures = append(c.pictures, p)
	part := append([]byte(`{"type":"image_url","image_url":{"url":`), url...)
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
func (d *dialogue) reasoning(it *entry) error {
	said, err := d.texts("content", it[inContent], "reasoning_text", "text")
	if err != nil {
		return err
	}
	if len(said) == 0 {
		said = d.before.open(it[inEncrypted])
	}
	summary, err := d.texts("summary", it[inSummary], "summary_text")
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
func (d *dialogue) texts(name string, v []byte, kinds ...string) (joined []byte, err error) {
	if v == nil {
		return nil, nil
	}
	if !field.IsArray(v) {
		return nil, field.WantType(name, "an array")
	}
	e := scan.Array(v)
	for i := 0; e.Next(); i++ {
		var f [2][]byte
		if err := d.fields("input[]."+name+"[].", e.Value, []string{"type", "text"}, f[:]); err != nil {
			return nil, field.Within(field.At(name, i), err)
		}
		if err := field.OneOf("type", f[0], kinds...); err != nil {
			return nil, field.Within(field.At(name, i), err)
		}
		if !field.IsString(f[1]) {
			return nil, field.Within(field.At(name, i), field.WantType("text", "a string"))
		}
		joined = join(joined, field.Inside(f[1]), `\n\n`)
	}
	return joined, nil
}

func (d *dialogue) call(it *entry, argument int) error {
	for _, i := range []int{inCallID, inName, argument} {
		if !field.IsString(it[i]) || i != argument && len(it[i]) <= len(`""`) {
			return field.WantType(itemMembers[i], "a string")
		}
	}
	b := make([]byte, 0, len(it[inCallID])+len(it[inName])+len(it[argument])+64)
	b = append(append(append(b, `{"id":`...), it[inCallID]...), `,"type":"function","function":{"name":`...)
	if it[inNamespace] == nil {
		b = append(b, it[inName]...)
	} else {
		b = scan.Quote(b, d.q.tools.flatOf(field.Text(it[inNamespace]), field.Text(it[inName])))
	}
	if b = append(b, `,"arguments":`...); argument == inInput {
		b = scan.Quote(b, `{"input":`+string(it[inInput])+`}`)
	} else {
		b = append(b, it[inArguments]...)
	}
	d.say(&d.turn.calls, append(b, `}}`...), `,`)
	if d.callIDs == nil {
		d.callIDs = map[string]bool{}
	}
	d.callIDs[string(it[inCallID])] = true
	return nil
}

func (d *dialogue) output(it *entry) error {
	if !field.IsString(it[inCallID]) {
		return field.WantType("call_id", "the call_id of the call that it answers")
	}
	if !d.callIDs[string(it[inCallID])] && !d.loose {
		return field.Invalid("call_id", "No tool call found for function call output with call_id %s.", field.Clip(field.Text(it[inCallID])))
	}
	c := content{d: d, role: "tool"}
	switch v := it[inOutput]; {
	case field.IsString(v):
		c.text = field.Inside(v)
	case field.IsArray(v):
		if err := c.list("output", v); err != nil {
			return err
		}
	default:
		return field.WantType("output", "a string or an array of content parts")
	}
	images, pictures := d.images, d.pictures
	d.images, d.pictures = nil, nil
	d.endTurn()
	d.start("tool")
	d.out = append(append(append(append(d.out, '"'), c.text...), `","tool_call_id":`...), it[inCallID]...)
	d.out = append(d.out, '}')
	d.text += int64(len(c.text))
	d.images, d.pictures = join(images, c.parts, ","), pictures
	for _, p := range c.pictures { // the parts follow those of earlier outputs
		p.part = len(d.pictures)
		d.pictures = append(d.pictures, p)
	}
	return nil
}

// compaction takes what an earlier compaction of ours wrote.
func (d *dialogue) compaction(it *entry) error {
	plain := d.before.open(it[inEncrypted])
	if !bytes.HasPrefix(plain, []byte(compactionMark)) {
		return field.Invalid("encrypted_content", "This compaction was not made here, or not for this organization.").WithCode("invalid_encrypted_content")
	}
	d.begin()
	d.start("user")
	d.out = append(append(append(append(d.out, '"'), compactionIntro...), plain[len(compactionMark):]...), `"}`...)
	d.text += int64(len(plain))
	return nil
}

// What is sealed in a compaction item begins with the mark; the intro, the inside of a string, tells the model what it reads.
const (
	compactionMark  = "compaction:"
	compactionIntro = "This is a summary of the conversation so far:\\n\\n"
)
