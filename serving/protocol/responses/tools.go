package responses

import (
	"hash/fnv"
	"strconv"
	"strings"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// tool is one tool that an engine can be told of. What is raw is the client's JSON; nil = absent.
type tool struct {
	custom          bool
	name, namespace string // the client's
	flat            string // the engine's

	description, parameters, strict, grammar []byte
}

// toolbox is what the client declared and how the model is to choose.
type toolbox struct {
	list    []tool
	hosted  map[string]bool // types of tools that were dropped: OpenAI's servers run them
	refuse  bool            // they are refused instead
	echo    []byte          // elements of the response's tools
	mode    string          // none, auto or required; "" = not said
	forced  int             // 1 + the tool that must be called; 0 = none
	allowed []bool          // of list; nil = all
	choice  []byte          // the response's tool_choice; nil = auto
}

// hosted are the tools that OpenAI runs, by the begin of their type. They are dropped by policy and named in a warning: agents
// declare them to whatever server they meet.
var hosted = []string{"web_search", "file_search", "code_interpreter", "mcp", "computer", "image_generation", "local_shell", "shell",
	"apply_patch", "tool_search"}

func isHosted(kind string) bool {
	for _, h := range hosted {
		if rest, found := strings.CutPrefix(kind, h); found && (rest == "" || rest[0] == '_') {
			return true
		}
	}
	return false
}

// read takes in an array of tools.
func (b *toolbox) read(q *Request, name string, v []byte) error {
	if !field.IsArray(v) {
		return field.WantType(name, "an array of tools")
	}
	e := scan.Array(v)
	for i := 0; e.Next(); i++ {
		if err := b.add(q, field.At(name, i), e.Value); err != nil {
			return err
		}
	}
	b.flatten()
	return nil
}

// The members of tools. Those of other kinds are of tools that OpenAI runs.
const (
	inToolType = iota
	inToolName
	inTools
	inDescription
	inParameters
	inStrict
	inFormat
	numToolMembers
)

var toolMembers = []string{"type", "name", "tools", "description", "parameters", "strict", "format"}

// toolMeaning are the members by which a tool of a kind says something; others have no effect.
var toolMeaning = map[string]uint32{
	"function":  1<<inToolName | 1<<inDescription | 1<<inParameters | 1<<inStrict,
	"custom":    1<<inToolName | 1<<inDescription | 1<<inFormat,
	"namespace": 1<<inToolName | 1<<inTools,
}

// readTool reads a tool's members and names those that have no effect, but of tools that are dropped.
func (q *Request) readTool(v []byte) (kind string, in [numToolMembers][]byte, err error) {
	var space [8][]byte
	odd := space[:0]
	if err := field.Read(v, toolMembers, in[:], func(name []byte) { odd = append(odd, name) }); err != nil {
		return "", in, err
	}
	kind = field.Text(in[inToolType])
	means, known := toolMeaning[kind]
	if !known {
		return kind, in, nil
	}
	place := "tools[]."
	if kind == "namespace" {
		place = "tools[] (namespace)."
	}
	ignore := func(name []byte) { q.Ignored.Add(place, name) }
	for _, name := range odd {
		ignore(name)
	}
	field.Unused(in[:], toolMembers, means|1<<inToolType, ignore)
	return kind, in, nil
}

func (b *toolbox) add(q *Request, place string, v []byte) error {
	kind, in, err := q.readTool(v)
	if err != nil {
		return field.Within(place, err)
	}
	switch {
	case kind == "function":
		t, err := b.addTool(q, &in, "", false)
		if err != nil {
			return field.Within(place, err)
		}
		b.show(t.appendEcho(nil))
	case kind == "custom":
		if _, err := b.addTool(q, &in, "", true); err != nil {
			return field.Within(place, err)
		}
		b.show(v)
	case kind == "namespace":
		if err := b.addNamespace(q, place, field.Text(in[inToolName]), in[inTools]); err != nil {
			return err
		}
		b.show(v)
	case isHosted(kind):
		return b.drop(q, place, kind)
	default:
		return field.WantType(place+".type", "one of function, custom, namespace")
	}
	return nil
}

func (b *toolbox) drop(q *Request, place, kind string) error {
	if b.refuse {
		return field.Unsupported(place+".type", "Tools of type %s are not run here.", kind)
	}
	if b.hosted == nil {
		b.hosted = map[string]bool{}
	}
	b.hosted[kind] = true
	q.Ignored.Name(place + " (" + field.Clip(kind) + ")")
	return nil
}

// addNamespace takes in the tools of a namespace.
func (b *toolbox) addNamespace(q *Request, place, name string, tools []byte) error {
	switch {
	case name == "":
		return field.WantType(place+".name", "a short string")
	case protocol.CheckToolName(name) != nil: // the names of its tools begin with it
		return field.Within(place, protocol.CheckToolName(name))
	case !field.IsArray(tools):
		return field.WantType(place+".tools", "an array of tools")
	}
	e := scan.Array(tools)
	for i := 0; e.Next(); i++ {
		child := field.At(place+".tools", i)
		kind, in, err := q.readTool(e.Value)
		if err != nil {
			return field.Within(child, err)
		}
		switch {
		case kind == "function" || kind == "custom":
			if _, err := b.addTool(q, &in, name, kind == "custom"); err != nil {
				return field.Within(child, err)
			}
		case isHosted(kind):
			if err := b.drop(q, child, kind); err != nil {
				return err
			}
		default:
			return field.WantType(child+".type", "one of function, custom")
		}
	}
	return nil
}

func (b *toolbox) addTool(q *Request, in *[numToolMembers][]byte, namespace string, custom bool) (*tool, error) {
	name := field.Text(in[inToolName])
	switch {
	case len(b.list) == maxTools:
		return nil, field.Invalid("", "There are more than %d tools.", maxTools)
	case name == "":
		return nil, field.WantType("name", "a short string")
	case in[inDescription] != nil && !field.IsString(in[inDescription]):
		return nil, field.WantType("description", "a string")
	}
	if err := protocol.CheckToolName(name); err != nil {
		return nil, err
	}
	t := tool{custom: custom, name: name, namespace: namespace, description: in[inDescription]}
	if custom {
		var err error
		if t.grammar, err = grammar(q, in[inFormat]); err != nil {
			return nil, err
		}
	} else {
		t.parameters, t.strict = in[inParameters], in[inStrict]
		switch {
		case t.parameters != nil && !field.IsObject(t.parameters):
			return nil, field.WantType("parameters", "a JSON schema")
		case t.strict != nil && !field.IsBool(t.strict):
			return nil, field.WantType("strict", "true or false")
		}
	}
	b.list = append(b.list, t)
	return &b.list[len(b.list)-1], nil
}

// grammar is the definition that a custom tool's input must match; nil for plain text.
func grammar(q *Request, v []byte) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	var f [3][]byte
	if err := q.read("tools[].format.", v, []string{"type", "definition", "syntax"}, f[:]); err != nil {
		return nil, field.Within("format", err)
	}
	switch field.Text(f[0]) {
	case "text":
		return nil, nil
	case "grammar":
		if !field.IsString(f[1]) {
			return nil, field.WantType("format.definition", "a string")
		}
		return f[1], field.OneOf("format.syntax", f[2], "lark", "regex")
	}
	return nil, field.WantType("format.type", "one of text, grammar")
}

func (b *toolbox) show(raw []byte) {
	if len(b.echo) > 0 {
		b.echo = append(b.echo, ',')
	}
	b.echo = append(b.echo, raw...)
}

// maxFlatName is what engines take for a function's name, in bytes.
const maxFlatName = 64

// flatten gives every tool its flat name: its own, or for one of a namespace a name that nothing else has.
func (b *toolbox) flatten() {
	taken, next := make(map[string]bool, len(b.list)), map[string]int{} // next: the number to try for a name that is taken
	for i := range b.list {
		if t := &b.list[i]; t.namespace == "" {
			t.flat = t.name
			taken[t.flat] = true
		}
	}
	for i := range b.list {
		t := &b.list[i]
		if t.namespace == "" {
			continue
		}
		base := flatName(t.namespace, t.name)
		t.flat = base
		for n := max(next[base], 2); taken[t.flat]; n++ {
			t.flat = flatName(t.namespace, t.name+"_"+strconv.Itoa(n))
			next[base] = n + 1
		}
		taken[t.flat] = true
	}
}

// flatName joins a namespace and a name; what is too long for engines is cut and told apart by a hash.
func flatName(namespace, name string) string {
	flat := namespace + "__" + name
	if len(flat) <= maxFlatName {
		return flat
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(flat))
	sum := strconv.FormatUint(h.Sum64(), 36)
	return strings.ToValidUTF8(flat[:maxFlatName-1-len(sum)], "") + "_" + sum
}

// flatOf is how the engine knows a call of the history.
func (b *toolbox) flatOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	for i := range b.list {
		if t := &b.list[i]; t.namespace == namespace && t.name == name {
			return t.flat
		}
	}
	return flatName(namespace, name)
}

// byFlat finds the tool that an engine called; nil = none that the client declared.
func (b *toolbox) byFlat(flat string) *tool {
	for i := range b.list {
		if b.list[i].flat == flat {
			return &b.list[i]
		}
	}
	return nil
}
