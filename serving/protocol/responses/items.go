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

// itemMeaning are the members by which an item of a kind says something; others have no effect.
var itemMeaning = map[string]uint32{
	"message":                 1<<inRole | 1<<inContent,
	"reasoning":               1<<inContent | 1<<inSummary | 1<<inEncrypted,
	"function_call":           1<<inCallID | 1<<inName | 1<<inArguments | 1<<inNamespace,
	"custom_tool_call":        1<<inCallID | 1<<inName | 1<<inInput | 1<<inNamespace,
	"function_call_output":    1<<inCallID | 1<<inOutput,
	"custom_tool_call_output": 1<<inCallID | 1<<inOutput,
	"compaction":              1 << inEncrypted,
	"compaction_summary":      1 << inEncrypted,
	"item_reference":          0,
	"additional_tools":        1<<inMoreTools | 1<<inRole,
}

// entry is an item of the input: its members, raw.
type entry [numItemMembers][]byte

// kind is the item's type: messages, and references, may leave it out.
func (it *entry) kind() string {
	switch {
	case it[inType] != nil:
		return field.Text(it[inType])
	case it[inRole] != nil:
		return "message"
	case it[inID] != nil:
		return "item_reference"
	}
	return ""
}

// fields reads an object of an item. What has no effect is named where the client sent it with this request.
func (d *dialogue) fields(place string, raw []byte, names []string, into [][]byte) error {
	return field.Read(raw, names, into, func(name []byte) { d.ignore(place, name) })
}

func (d *dialogue) ignore(place string, name []byte) {
	if d.item >= 0 {
		d.q.Ignored.Add(place, name)
	}
}

// nameUnused names the members of an item that have no effect on one of its kind.
func (d *dialogue) nameUnused(it *entry, means uint32) {
	for i, v := range it {
		if v != nil && (means|silent)&(1<<i) == 0 {
			d.ignore("input[].", []byte(itemMembers[i]))
		}
	}
}
