package responses

import "millrace/serving/protocol/field"

// The members of items.
const (
	inType = iota
	inRole
	inContent
	inPhase
	inID
	inStatus
	inCallID
	inName
	inArguments
	inInput
	inOutput
	inNamespace
	inSummary
	inEncrypted
	inMoreTools
	numItemMembers
)

var itemMembers = []string{"type", "role", "content", "phase", "id", "status", "call_id", "name", "arguments", "input", "output", "namespace", "summary",
	"encrypted_content", "tools"}

// silent are the members with which items of answers come back, and that say nothing to a model.
const silent = 1<<inType | 1<<inID | 1<<inStatus

// itemKind is a kind of item, and the members by which one says something: others have no effect.
type itemKind struct {
	read  func(*dialogue, *entry) error
	means uint32
}

var itemKinds map[string]itemKind

func init() { // the readers read items that references name
	call := func(argument int) itemKind {
		return itemKind{func(d *dialogue, it *entry) error { return d.call(it, argument) }, 1<<inCallID | 1<<inName | 1<<argument | 1<<inNamespace}
	}
	output := itemKind{(*dialogue).output, 1<<inCallID | 1<<inOutput}
	compaction := itemKind{(*dialogue).compaction, 1 << inEncrypted}
	itemKinds = map[string]itemKind{
		"message":              {(*dialogue).message, 1<<inRole | 1<<inContent},
		"reasoning":            {(*dialogue).reasoning, 1<<inContent | 1<<inSummary | 1<<inEncrypted},
		"function_call":        call(inArguments),
		"custom_tool_call":     call(inInput),
		"function_call_output": output, "custom_tool_call_output": output,
		"compaction": compaction, "compaction_summary": compaction,
		"item_reference":   {(*dialogue).reference, 0},
		"additional_tools": {(*dialogue).moreTools, 1<<inMoreTools | 1<<inRole},
	}
}

// entry is an item of the input: its members, raw.
type entry [numItemMembers][]byte

// kind is the item's type, still escaped: messages, and references, may leave it out.
func (it *entry) kind() []byte {
	switch {
	case it[inType] != nil:
		return field.Inside(it[inType])
	case it[inRole] != nil:
		return []byte("message")
	case it[inID] != nil:
		return []byte("item_reference")
	}
	return nil
}

// fields reads an object of an item. What has no effect is named where the client sent it with this request.
func (d *dialogue) fields(place string, raw []byte, names []string, into [][]byte) error {
	return field.Read(raw, names, into, func(name []byte) { d.ignore(place, name) })
}

// unused names the members that have no effect on an item, or a part, of its kind.
func (d *dialogue) unused(place string, in [][]byte, names []string, means uint32) {
	field.Unused(in, names, means, func(name []byte) { d.ignore(place, name) })
}

func (d *dialogue) ignore(place string, name []byte) {
	if d.item >= 0 {
		d.q.Ignored.Add(place, name)
	}
}
