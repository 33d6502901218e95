package responses

import (
	"errors"
	"slices"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// dialogue is the Chat Completions messages in the making. Items of one turn of the model (reasoning, text, calls) become one
// assistant message.
type dialogue struct {
	q       *Request
	before  *Context
	out     []byte   // the canonical request, up to the messages so far
	origins []origin // of each message
	starts  []int    // of each message: where it begins in out
	text    int64    // bytes of text

	item     int    // the item being read; -1 = one of earlier turns
	entry    entry  // its members
	begun    bool   // something other than system messages came
	system   []byte // inside of a string: instructions and the system messages that come first
	turn     turn
	images   []byte    // parts that tool outputs hold: only a user's message can carry them
	pictures []picture // of them
	callIDs  map[string]bool
	refs     int    // references so far
	more     int    // items that declared further tools
	found    []byte // the item that the latest reference names
	loose    bool   // items by themselves: an output's call may stand elsewhere
}

// origin is what a message was made of.
type origin struct {
	item     int       // the input item that it began with; -1 = none of this request's input
	pictures []picture // of the parts of its content
}

// picture is an image among the parts of a message, and where it comes from.
type picture struct {
	part, item, at int
	list           string // content or output
	remote         bool
}

// turn is an assistant message in the making: insides of strings, and elements of tool_calls.
type turn struct {
	any                       bool
	reasoning, content, calls []byte
	item                      int
}

// items reads an array of items.
func (d *dialogue) items(list []byte, own bool) error {
	e := scan.Array(list)
	i := 0
	for ; e.Next(); i++ {
		if i == maxItems {
			return field.Invalid("input", "There are more than %d items.", maxItems)
		}
		if d.item = -1; own {
			d.item = i
		}
		if err := d.read(e.Value); err != nil {
			return field.Within(field.At("input", i), err)
		}
		if item := e.Value; own {
			if d.found != nil {
				item, d.found = d.found, nil
			}
			if err := d.keep(item); err != nil {
				return field.Within(field.At("input", i), err)
			}
		}
		if len(d.out) > protocol.MaxBodyBytes || len(d.q.Kept) > protocol.MaxBodyBytes {
			return fault.New(fault.TooLarge, "The input is larger than %d MiB with what it refers to.", protocol.MaxBodyBytes>>20)
		}
	}
	if i == 0 && own && len(d.before.Items) == 0 && !d.loose {
		return field.WantType("input", "a string or an array of at least one item")
	}
	return nil
}

// passedOver are items that only servers with the tools of OpenAI's can act upon, and notes that agents leave for themselves.
var passedOver = []string{"web_search_call", "file_search_call", "computer_call", "computer_call_output", "code_interpreter_call",
	"image_generation_call", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call",
	"apply_patch_call_output", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call", "tool_search_call",
	"tool_search_output", "compaction_trigger", "context_compaction", "ghost_snapshot", "program", "program_output", "other"}

func (d *dialogue) read(raw []byte) error {
	it := &d.entry
	*it = entry{}
	if err := d.fields("input[].", raw, itemMembers, it[:]); err != nil {
		return err
	}
	kind := it.kind()
	if k, known := itemKinds[string(kind)]; known {
		d.unused("input[].", it[:], itemMembers, k.means|silent)
		return k.read(d, it)
	}
	name := string(kind)
	switch {
	case name == "":
		return field.WantType("type", "the type of an item")
	case !slices.Contains(passedOver, name):
		return field.Invalid("type", "Items of type %q are not known here.", field.Clip(name)).WithCode("unsupported_value")
	}
	if d.item >= 0 {
		d.q.Ignored.Name(field.At("input", d.item) + " (" + name + ")")
	}
	return nil
}

// Limits of what one item makes of others.
const (
	maxReferences = 128
	maxToolItems  = 32
)

// moreTools adds the tools that an agent declares in mid-conversation.
func (d *dialogue) moreTools(it *entry) error {
	if it[inMoreTools] == nil || d.item < 0 {
		return nil
	}
	if d.more++; d.more > maxToolItems {
		return field.Invalid("type", "More than %d items declare further tools.", maxToolItems)
	}
	shown := len(d.q.tools.echo)
	err := d.q.tools.read(d.q, "tools", it[inMoreTools])
	d.q.tools.echo = d.q.tools.echo[:shown]
	return err
}

// reference puts the item in that a client names by its id.
func (d *dialogue) reference(it *entry) error {
	id := field.Text(it[inID])
	if id == "" {
		return field.WantType("id", "an item's id")
	}
	if d.refs++; d.refs > maxReferences {
		return field.Invalid("id", "There are more than %d references: continue from the response or the conversation instead.", maxReferences)
	}
	item, err := d.before.find(id)
	if err != nil {
		return err
	}
	if item == nil {
		return fault.New(fault.NotFound, "Item with id %q not found. Items are not kept when store is false: send the item itself.", field.Clip(id)).
			WithParam("id").WithCode("item_not_found")
	}
	if field.Text(field.Member(item, "type")) == "item_reference" {
		return errors.New("responses: a stored item that is a reference")
	}
	d.found = item
	return d.read(item)
}

// ---- messages ------------------------------------------------------------------------------------------------------

func (d *dialogue) message(it *entry) error {
	if it[inContent] == nil {
		return field.Invalid("content", "The message has no content.")
	}
	c := content{d: d}
	switch string(it[inRole]) {
	case `"user"`:
		c.role = "user"
	case `"assistant"`:
		c.role = "assistant"
	case `"system"`, `"developer"`:
		c.role = "system"
	default:
		return field.WantType("role", "one of user, assistant, system, developer")
	}
	if err := c.read(it[inContent]); err != nil {
		return err
	}
	switch c.role {
	case "assistant":
		d.say(&d.turn.content, c.text, `\n\n`)
		return nil
	case "user":
		d.begin()
		d.start("user")
		d.out = append(c.appendTo(d.out), '}')
		d.text += int64(len(c.text))
		d.origins[len(d.origins)-1].pictures = c.pictures
	default:
		if !d.begun {
			d.system = join(d.system, c.text, `\n\n`)
			return nil
		}
		d.endTurn()
		d.start("system")
		d.out = append(c.appendTo(d.out), '}')
		d.text += int64(len(c.text))
	}
	return nil
}

// join appends more to text, with a separator between two that are not empty.
func join(text, more []byte, separator string) []byte {
	if len(text) > 0 && len(more) > 0 {
		text = append(text, separator...)
	}
	return append(text, more...)
}

// start begins a message, up to the value of its content.
func (d *dialogue) start(role string) {
	if len(d.starts) > 0 {
		d.out = append(d.out, ',')
	}
	d.starts = append(d.starts, len(d.out))
	d.out = append(append(append(d.out, `{"role":"`...), role...), `","content":`...)
	d.origins = append(d.origins, origin{item: d.item})
}

// begin ends what stands before a message that is no system message.
func (d *dialogue) begin() {
	d.endSystem()
	d.endTurn()
}

func (d *dialogue) endSystem() {
	if !d.begun && len(d.system) > 0 {
		d.start("system")
		d.out = append(append(append(d.out, '"'), d.system...), `"}`...)
		d.text += int64(len(d.system))
	}
	d.begun = true
}

// say adds to the turn of the model.
func (d *dialogue) say(into *[]byte, text []byte, separator string) {
	d.endSystem()
	d.endImages()
	if !d.turn.any {
		d.turn.any, d.turn.item = true, d.item
	}
	*into = join(*into, text, separator)
}

// endTurn writes the turn of the model, if there is one, and the images of tool outputs.
func (d *dialogue) endTurn() {
	d.endImages()
	t := &d.turn
	if !t.any {
		return
	}
	item := d.item
	d.item = t.item
	before := len(d.out)
	d.start("assistant")
	d.out = append(t.appendTo(d.out, d.q.thinks()), '}')
	d.text += int64(len(d.out) - before)
	d.item = item
	*t = turn{reasoning: t.reasoning[:0], content: t.content[:0], calls: t.calls[:0]}
}

// appendTo appends the turn's content and its other members. Calls without reasoning get an empty one where thinking is asked
// for: models that think refuse a history in which it is missing, or begin to think about it.
func (t *turn) appendTo(dst []byte, thinks bool) []byte {
	if len(t.content) == 0 && len(t.calls) > 0 {
		dst = append(dst, `null`...)
	} else {
		dst = append(append(append(dst, '"'), t.content...), '"')
	}
	if len(t.reasoning) > 0 || thinks && len(t.calls) > 0 {
		dst = append(append(append(dst, `,"reasoning_content":"`...), t.reasoning...), '"')
	}
	if len(t.calls) > 0 {
		dst = append(append(append(dst, `,"tool_calls":[`...), t.calls...), ']')
	}
	return dst
}

// endImages writes what tools gave besides text, after the last of their outputs.
func (d *dialogue) endImages() {
	if len(d.images) > 0 {
		d.start("user")
		d.out = append(append(append(d.out, '['), d.images...), `]}`...)
		d.origins[len(d.origins)-1].pictures = d.pictures
		d.images, d.pictures = d.images[:0], nil
	}
}
