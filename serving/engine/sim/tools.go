package sim

import (
	"encoding/json"
	"slices"
	"strings"

	"millrace/serving/engine/scan"
)

// tool is a function that the client offers.
type tool struct {
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// chooseTools picks the functions to call: by tool_choice, or, with "auto", those that the last user message names, else the
// first that it has a word of, or, when it asks for a tool without naming one, the first.
func chooseTools(tools []tool, choice json.RawMessage, question string) []tool {
	if len(tools) == 0 {
		return nil
	}
	var word string
	if json.Unmarshal(choice, &word) == nil {
		switch word {
		case "none":
			return nil
		case "required":
			if named := named(tools, question); len(named) > 0 {
				return named
			}
			return tools[:1]
		}
		return asked(tools, question)
	}
	var forced struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(choice, &forced) == nil && forced.Function.Name != "" {
		return slices.DeleteFunc(slices.Clone(tools), func(t tool) bool { return t.Function.Name != forced.Function.Name })
	}
	return asked(tools, question)
}

func asked(tools []tool, question string) []tool {
	if all := named(tools, question); len(all) > 0 {
		return all
	}
	q := strings.ToLower(question)
	for i := range tools {
		if sharesWord(tools[i].Function.Name, q) {
			return tools[i : i+1]
		}
	}
	if strings.Contains(q, "use a tool") || strings.Contains(q, "use the tool") || strings.Contains(q, "call the tool") || strings.Contains(q, "call a tool") {
		return tools[:1]
	}
	return nil
}

// tellingWord is how long a word of a tool's name must be to tell what the tool is about, in bytes.
const tellingWord = 6

// sharesWord reports whether a question has a telling word of a tool's name: what get_weather does, "the weather" asks for.
func sharesWord(name, question string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '-' })
	return slices.ContainsFunc(words, func(w string) bool { return len(w) >= tellingWord && strings.Contains(question, w) })
}

func named(tools []tool, question string) (all []tool) {
	q := strings.ToLower(question)
	for _, t := range tools {
		name := strings.ToLower(t.Function.Name)
		if name != "" && (strings.Contains(q, name) || strings.Contains(q, strings.NewReplacer("_", " ", "-", " ").Replace(name))) {
			all = append(all, t)
		}
	}
	return all
}

// format is the shape that an answer must have, as response_format says.
type format struct {
	Type string `json:"type"`
	JSON struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
	Regex  json.RawMessage `json:"regex"`
	EBNF   json.RawMessage `json:"ebnf"`
	choice string
}

func (f *format) on() bool { return f.Type != "" && f.Type != "text" }

// structuredOutputs is vLLM's member for constraints beside response_format.
const structuredOutputs = "structured_outputs"

func (f *format) structured(v []byte) error {
	var s struct {
		JSON    json.RawMessage `json:"json"`
		Object  bool            `json:"json_object"`
		Regex   json.RawMessage `json:"regex"`
		Grammar json.RawMessage `json:"grammar"`
		Choice  []string        `json:"choice"`
	}
	if err := json.Unmarshal(v, &s); err != nil {
		return err
	}
	switch {
	case s.JSON != nil:
		f.Type, f.JSON.Schema = "json_schema", s.JSON
	case s.Object:
		f.Type = "json_object"
	case s.Regex != nil:
		f.Type, f.Regex = "regex", s.Regex
	case s.Grammar != nil:
		f.Type, f.EBNF = "ebnf", s.Grammar
	case len(s.Choice) > 0:
		f.Type, f.choice = "choice", s.Choice[0]
	}
	return nil
}

// answer is text of that shape.
func (f *format) answer() string {
	switch f.Type {
	case "regex":
		text, _ := scan.Text(nil, f.Regex)
		return exampleOf(string(text))
	case "ebnf":
		text, _ := scan.Text(nil, f.EBNF)
		return firstLiteral(string(text))
	case "choice":
		return f.choice
	}
	if f.Type == "json_object" || len(f.JSON.Schema) == 0 {
		return `{"simulated": true}`
	}
	return arguments(f.JSON.Schema, maxSchemaDepth)
}

// schema is the part of JSON Schema from which arguments are made.
type schema struct {
	Type       any               `json:"type"`
	Enum       []json.RawMessage `json:"enum"`
	Const      json.RawMessage   `json:"const"`
	Properties json.RawMessage   `json:"properties"`
	Required   []string          `json:"required"`
	Items      json.RawMessage   `json:"items"`
	AnyOf      []json.RawMessage `json:"anyOf"`
	OneOf      []json.RawMessage `json:"oneOf"`
	Minimum    *float64          `json:"minimum"`
}

// maxSchemaDepth bounds nested arguments.
const maxSchemaDepth = 8

// arguments makes a value that a schema allows; what it cannot read becomes null.
func arguments(raw json.RawMessage, depth int) string {
	var s schema
	if depth == 0 || json.Unmarshal(raw, &s) != nil {
		return "null"
	}
	switch {
	case len(s.Const) > 0:
		return string(s.Const)
	case len(s.Enum) > 0:
		return string(s.Enum[0])
	case len(s.AnyOf) > 0:
		return arguments(s.AnyOf[0], depth-1)
	case len(s.OneOf) > 0:
		return arguments(s.OneOf[0], depth-1)
	}
	switch typeOf(s) {
	case "string":
		return `"simulated"`
	case "integer", "number":
		if s.Minimum != nil {
			b, _ := json.Marshal(*s.Minimum) // a finite number: it came from JSON
			return string(b)
		}
		return "1"
	case "boolean":
		return "true"
	case "array":
		if len(s.Items) == 0 {
			return "[]"
		}
		return "[" + arguments(s.Items, depth-1) + "]"
	case "object":
		return object(s, depth)
	}
	return "null"
}

func typeOf(s schema) string {
	switch t := s.Type.(type) {
	case string:
		return t
	case []any:
		for _, v := range t {
			if name, ok := v.(string); ok && name != "null" {
				return name
			}
		}
	}
	if len(s.Properties) > 0 {
		return "object"
	}
	return ""
}

// object fills the required members, or all when none is required, in sorted order.
func object(s schema, depth int) string {
	var props map[string]json.RawMessage
	if len(s.Properties) > 0 && json.Unmarshal(s.Properties, &props) != nil {
		return "{}"
	}
	names := slices.Clone(s.Required)
	if len(names) == 0 {
		for name := range props {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range slices.Compact(names) {
		if i > 0 {
			b.WriteString(", ")
		}
		quoted, _ := json.Marshal(name) // strings always marshal
		b.Write(quoted)
		b.WriteString(": " + arguments(props[name], depth-1))
	}
	b.WriteByte('}')
	return b.String()
}
