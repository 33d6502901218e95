package engine

import (
	"encoding/json"
	"regexp"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// constraintKind is what an output is constrained by.
type constraintKind int

const (
	unconstrained constraintKind = iota
	byJSON                       // a JSON schema
	byJSONObject                 // any JSON object
	byRegex
	byGrammar // EBNF, as xgrammar and llama.cpp read it
	byChoice  // one of several texts
	byTag     // vLLM's structural tags, which no other engine reads in that form
)

// constraint is what a client asked for beyond response_format. Every engine has names of its own for it; clients may use
// those of any, and each engine gets its own.
type constraint struct {
	kind  constraintKind
	name  string // of the member, for errors: "structured_outputs.regex"
	value []byte // raw
	whole []byte // the member as it was sent
}

// constraintNames are the members that hold a constraint directly: vLLM's older ones, SGLang's, llama.cpp's.
var constraintNames = map[string]constraintKind{
	"guided_json": byJSON, "guided_regex": byRegex, "guided_choice": byChoice, "guided_grammar": byGrammar,
	"regex": byRegex, "ebnf": byGrammar, "grammar": byGrammar, "json_schema": byJSON,
}

// structuredOutputs is vLLM's member that holds one of them by name.
const structuredOutputs = "structured_outputs"

var structuredNames = map[string]constraintKind{
	"json": byJSON, "json_object": byJSONObject, "regex": byRegex, "choice": byChoice, "grammar": byGrammar, "structural_tag": byTag,
}

// constrains reports whether a member is a constraint: those are translated for each engine or refused, never left out.
func constrains(key []byte) bool {
	_, direct := constraintNames[string(key)]
	return direct || string(key) == structuredOutputs
}

// add takes in such a member. whole is its name and value.
func (c *constraint) add(key string, value, whole []byte) error {
	if absent(value) {
		return nil
	}
	if kind, direct := constraintNames[key]; direct {
		return c.set(constraint{kind, key, value, whole})
	}
	m := scan.Object(value)
	for m.Next() {
		kind, known := structuredNames[string(m.Key)]
		if !known || absent(m.Value) || kind == byJSONObject && string(m.Value) == "false" {
			continue // options such as whitespace_pattern, which only vLLM has
		}
		if err := c.set(constraint{kind, key + "." + string(m.Key), m.Value, whole}); err != nil {
			return err
		}
	}
	if m.Err() != nil {
		return fault.New(fault.Invalid, "%s must be an object.", key).WithParam(key)
	}
	return nil
}

func (c *constraint) set(next constraint) error {
	if c.kind != unconstrained {
		return fault.New(fault.Invalid, "%s and %s both constrain the output: send one of them.", c.name, next.name).WithParam(next.name)
	}
	*c = next
	return c.check()
}

// check looks at the value's type: what engines answer to a wrong one differs.
func (c *constraint) check() error {
	want := ""
	switch v := c.value[0]; c.kind {
	case byRegex, byGrammar:
		if v != '"' {
			want = "a string"
		}
	case byJSON:
		schema := c.schema()
		if schema == nil {
			want = "a JSON schema: an object"
		}
		c.value = schema
	case byChoice:
		if len(c.choices()) == 0 {
			want = "a list of strings"
		}
	}
	if want == "" {
		return nil
	}
	return fault.New(fault.Invalid, "%s must be %s.", c.name, want).WithParam(c.name)
}

// schema is the JSON schema, which some clients send as a string that holds it; nil when there is none.
func (c *constraint) schema() []byte {
	v := c.value
	if v[0] == '"' {
		text, _ := scan.Text(nil, v)
		if !json.Valid(text) {
			return nil
		}
		v = text[scan.Space(text, 0):]
	}
	if v[0] != '{' {
		return nil
	}
	return v
}

func (c *constraint) choices() (all []string) {
	if json.Unmarshal(c.value, &all) != nil {
		return nil
	}
	return all
}

// alternatives is a regular expression of the choices.
func (c *constraint) alternatives() string {
	all := c.choices()
	for i := range all {
		all[i] = regexp.QuoteMeta(all[i])
	}
	return "(" + strings.Join(all, "|") + ")"
}

// rule is a grammar of the choices.
func (c *constraint) rule() string {
	b := []byte("root ::= ")
	for i, text := range c.choices() {
		if i > 0 {
			b = append(b, " | "...)
		}
		b = scan.Quote(b, text) // JSON's escapes are the grammar's
	}
	return string(b)
}

// unsupported refuses a constraint that an engine does not have: without it the output would be another.
func (c *constraint) unsupported() error {
	return fault.New(fault.Invalid, "%s is not supported: this model's engine has no such constraint. A JSON schema in response_format is.", c.name).
		WithParam(c.name).WithCode("unsupported_parameter")
}
