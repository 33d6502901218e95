package responses

import (
	"hash/fnv"
	"strconv"
	"strings"

	"millrace/serving/engine/scan"
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
	if !isArray(v) {
		return wantType(name, "an array of tools")
	}
	e := scan.Array(v)
	for i := 0; e.Next(); i++ {
		if err := b.add(q, at(name, i), e.Value); err != nil {
			return err
		}
	}
	b.flatten()
	return nil
}

func (b *toolbox) add(q *Request, place string, v []byte) error {
	f, err := fields(v, "type", "name", "tools")
	if err != nil {
		return within(place, err)
	}
	switch kind := text(f[0]); {
	case kind == "function":
		t, err := b.addTool(v, "", false)
		if err != nil {
			return within(place, err)
		}
		b.show(t.appendEcho(nil))
	case kind == "custom":
		if _, err := b.addTool(v, "", true); err != nil {
			return within(place, err)
		}
		b.show(v)
	case kind == "namespace":
		if err := b.addNamespace(q, place, text(f[1]), f[2]); err != nil {
			return err
		}
		b.show(v)
	case isHosted(kind):
		return b.drop(q, place, kind)
	default:
		return wantType(place+".type", "one of function, custom, namespace")
	}
	return nil
}

func (b *toolbox) drop(q *Request, place, kind string) error {
	if b.refuse {
		return unsupported(place+".type", "Tools of type %s are not run here.", kind)
	}
	if b.hosted == nil {
		b.hosted = map[string]bool{}
	}
	b.hosted[kind] = true
	q.ignore("%s (%s)", place, shown(kind))
	return nil
}

// addNamespace takes in the tools of a namespace.
func (b *toolbox) addNamespace(q *Request, place, name string, tools []byte) error {
	switch {
	case name == "" || len(name) > maxToolName:
		return wantType(place+".name", "a short string")
	case !isArray(tools):
		return wantType(place+".tools", "an array of tools")
	}
	e := scan.Array(tools)
	for i := 0; e.Next(); i++ {
		child := at(place+".tools", i)
		f, err := fields(e.Value, "type")
		if err != nil {
			return within(child, err)
		}
		switch kind := text(f[0]); {
		case kind == "function" || kind == "custom":
			if _, err := b.addTool(e.Value, name, kind == "custom"); err != nil {
				return within(child, err)
			}
		case isHosted(kind):
			if err := b.drop(q, child, kind); err != nil {
				return err
			}
		default:
			return wantType(child+".type", "one of function, custom")
		}
	}
	return nil
}

func (b *toolbox) addTool(v []byte, namespace string, custom bool) (*tool, error) {
	f, err := fields(v, "name", "description", "parameters", "strict", "format")
	if err != nil {
		return nil, err
	}
	switch {
	case len(b.list) == maxTools:
		return nil, invalid("", "There are more than %d tools.", maxTools)
	case text(f[0]) == "" || len(f[0]) > maxToolName:
		return nil, wantType("name", "a short string")
	case f[1] != nil && !isString(f[1]):
		return nil, wantType("description", "a string")
	case !custom && f[2] != nil && !isObject(f[2]):
		return nil, wantType("parameters", "a JSON schema")
	case !custom && f[3] != nil && !isBool(f[3]):
		return nil, wantType("strict", "true or false")
	}
	t := tool{custom: custom, name: text(f[0]), namespace: namespace, description: f[1]}
	if custom {
		if t.grammar, err = grammar(f[4]); err != nil {
			return nil, err
		}
	} else {
		t.parameters, t.strict = f[2], f[3]
	}
	b.list = append(b.list, t)
	return &b.list[len(b.list)-1], nil
}

// grammar is the definition that a custom tool's input must match; nil for plain text.
func grammar(v []byte) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	f, err := fields(v, "type", "definition", "syntax")
	if err != nil {
		return nil, within("format", err)
	}
	switch text(f[0]) {
	case "text":
		return nil, nil
	case "grammar":
		if !isString(f[1]) {
			return nil, wantType("format.definition", "a string")
		}
		return f[1], oneOf("format.syntax", f[2], "lark", "regex")
	}
	return nil, wantType("format.type", "one of text, grammar")
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
