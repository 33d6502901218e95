package responses

import (
	"fmt"
	"slices"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
)

// dialogue is the Chat Completions messages in the making. Items of one turn of the model (reasoning, text, calls) become one
// assistant message.
type dialogue struct {
	q       *Request
	before  *Context
	out     []byte
	origins []int // of each message: the index of the input item that it began with; -1 = none of this request's input
	starts  []int // of each message: where it begins in out

	item    int    // the item being read; -1 = one of earlier turns
	begun   bool   // something other than system messages came
	system  []byte // inside of a string: instructions and the system messages that come first
	turn    turn
	images  []byte // parts that tool outputs hold: only a user's message can carry them
	callIDs map[string]bool
	refs    int    // references so far
	more    int    // items that declared further tools
	found   []byte // the item that the latest reference names
	loose   bool   // items by themselves: an output's call may stand elsewhere
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
			return invalid("input", "There are more than %d items.", maxItems)
		}
		if d.item = -1; own {
			d.item = i
		}
		if err := d.read(e.Value); err != nil {
			return within(at("input", i), err)
		}
		if item := e.Value; own {
			if d.found != nil {
				item, d.found = d.found, nil
			}
			if err := d.keep(item); err != nil {
				return within(at("input", i), err)
			}
		}
		if len(d.out) > protocol.MaxBodyBytes || len(d.q.Kept) > protocol.MaxBodyBytes {
			return fault.New(fault.TooLarge, "The input is larger than %d MiB with what it refers to.", protocol.MaxBodyBytes>>20)
		}
	}
	if i == 0 && own && len(d.before.Items) == 0 && !d.loose {
		return wantType("input", "a string or an array of at least one item")
	}
	return nil
}

// passedOver are items that only servers with the tools of OpenAI's can act upon, and notes that agents leave for themselves.
var passedOver = []string{"web_search_call", "file_search_call", "computer_call", "computer_call_output", "code_interpreter_call",
	"image_generation_call", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call",
	"apply_patch_call_output", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call", "tool_search_call",
	"tool_search_output", "compaction_trigger", "context_compaction", "ghost_snapshot", "program", "program_output", "other"}

func (d *dialogue) read(raw []byte) error {
	f, err := fields(raw, "type", "role")
	if err != nil {
		return err
	}
	switch kind := text(f[0]); kind {
	case "message":
		return d.message(raw)
	case "reasoning":
		return d.reasoning(raw)
	case "function_call":
		return d.call(raw, false)
	case "custom_tool_call":
		return d.call(raw, true)
	case "function_call_output", "custom_tool_call_output":
		return d.output(raw)
	case "compaction", "compaction_summary":
		return d.compaction(raw)
	case "item_reference":
		return d.reference(raw)
	case "additional_tools":
		return d.moreTools(raw)
	case "":
		if f[0] == nil && f[1] != nil {
			return d.message(raw)
		}
		if ref, _ := fields(raw, "id"); f[0] == nil && ref[0] != nil {
			return d.reference(raw)
		}
		return wantType("type", "the type of an item")
	default:
		if !slices.Contains(passedOver, kind) {
			return invalid("type", "Items of type %q are not known here.", clip(kind)).WithCode("unsupported_value")
		}
		if d.item >= 0 {
			d.q.ignore("input[%d] (%s)", d.item, kind)
		}
	}
	return nil
}

// Limits of what one item makes of others.
const (
	maxReferences = 128
	maxToolItems  = 32
)

// moreTools adds the tools that an agent declares in mid-conversation.
func (d *dialogue) moreTools(raw []byte) error {
	f, err := fields(raw, "tools")
	if err != nil || f[0] == nil || d.item < 0 {
		return err
	}
	if d.more++; d.more > maxToolItems {
		return invalid("type", "More than %d items declare further tools.", maxToolItems)
	}
	shown := len(d.q.tools.echo)
	err = d.q.tools.read(d.q, "tools", f[0])
	d.q.tools.echo = d.q.tools.echo[:shown]
	return err
}

// reference puts the item in that a client names by its id.
func (d *dialogue) reference(raw []byte) error {
	f, err := fields(raw, "id")
	if err != nil {
		return err
	}
	id := text(f[0])
	if id == "" {
		return wantType("id", "an item's id")
	}
	if d.refs++; d.refs > maxReferences {
		return invalid("id", "There are more than %d references: continue from the response or the conversation instead.", maxReferences)
	}
	item, err := d.before.find(id)
	if err != nil {
		return err
	}
	if item == nil {
		return fault.New(fault.NotFound, "Item with id %q not found. Items are not kept when store is false: send the item itself.", clip(id)).
			WithParam("id").WithCode("item_not_found")
	}
	if f, err := fields(item, "type"); err != nil || text(f[0]) == "item_reference" {
		return fmt.Errorf("responses: a stored item that is a reference: %w", err)
	}
	d.found = item
	return d.read(item)
}

// ---- messages ------------------------------------------------------------------------------------------------------

func (d *dialogue) message(raw []byte) error {
	f, err := fields(raw, "role", "content", "phase")
	if err != nil {
		return err
	}
	if f[1] == nil {
		return invalid("content", "The message has no content.")
	}
	if f[2] != nil && d.item >= 0 {
		d.q.ignore("input[].phase")
	}
	c := content{role: text(f[0])}
	switch c.role {
	case "user", "system", "developer", "assistant":
	default:
		return wantType("role", "one of user, assistant, system, developer")
	}
	if err := c.read(f[1]); err != nil {
		return err
	}
	switch c.role {
	case "assistant":
		d.say(&d.turn.content, c.text, `\n\n`)
		return nil
	case "user":
		d.begin()
		d.put(`{"role":"user","content":`, c.appendTo, `}`)
	default:
		if !d.begun {
			d.system = join(d.system, c.text, `\n\n`)
			return nil
		}
		d.endTurn()
		d.put(`{"role":"system","content":`, c.appendTo, `}`)
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

// put appends one message.
func (d *dialogue) put(open string, body func([]byte) []byte, end string) {
	if len(d.out) > 0 {
		d.out = append(d.out, ',')
	}
	d.starts = append(d.starts, len(d.out))
	d.out = append(body(append(d.out, open...)), end...)
	d.origins = append(d.origins, d.item)
}

// begin ends what stands before a message that is no system message.
func (d *dialogue) begin() {
	d.endSystem()
	d.endTurn()
}

func (d *dialogue) endSystem() {
	if !d.begun && len(d.system) > 0 {
		d.put(`{"role":"system","content":"`, func(b []byte) []byte { return append(b, d.system...) }, `"}`)
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
	d.put(`{"role":"assistant"`, t.appendTo, `}`)
	d.item = item
	*t = turn{reasoning: t.reasoning[:0], content: t.content[:0], calls: t.calls[:0]}
}

func (t *turn) appendTo(dst []byte) []byte {
	if len(t.reasoning) > 0 {
		dst = append(append(append(dst, `,"reasoning_content":"`...), t.reasoning...), '"')
	}
	if len(t.content) == 0 && len(t.calls) > 0 {
		dst = append(dst, `,"content":null`...)
	} else {
		dst = append(append(append(dst, `,"content":"`...), t.content...), '"')
	}
	if len(t.calls) > 0 {
		dst = append(append(append(dst, `,"tool_calls":[`...), t.calls...), ']')
	}
	return dst
}

// endImages writes what tools gave besides text, after the last of their outputs.
func (d *dialogue) endImages() {
	if len(d.images) > 0 {
		d.put(`{"role":"user","content":[`, func(b []byte) []byte { return append(b, d.images...) }, `]}`)
		d.images = d.images[:0]
	}
}
