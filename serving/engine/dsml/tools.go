package dsml

import (
	"fmt"
	"slices"

	"millrace/serving/engine/scan"
)

func (c *conversation) readTools(raw []byte) error {
	if raw == nil {
		return nil
	}
	e := scan.Array(raw)
	for e.Next() {
		where := fmt.Sprintf("tools[%d]", len(c.tools))
		fn := member(e.Value, "function")
		name := str(member(fn, "name"))
		switch {
		case len(c.tools) == maxTools:
			return invalid("tools", "There are more than %d tools.", maxTools)
		case name == "":
			return invalid(where, "%s must be a function with a name.", where)
		}
		schema := appendString([]byte(`{"name": `), name)
		schema = appendString(append(schema, `, "description": `...), str(member(fn, "description")))
		schema = append(schema, `, "parameters": `...)
		parameters := member(fn, "parameters")
		if parameters == nil {
			parameters = []byte("{}")
		}
		schema, ok := c.markup.dump(schema, parameters, 0)
		if !ok {
			return invalid(where+".function.parameters", "The parameters of %s must be a JSON schema of at most %d levels.", where, maxDepth)
		}
		c.tools = append(c.tools, tool{name, string(schema) + "}"})
	}
	return nil
}

// readChoice applies tool_choice: tools that must not be called are not shown, and a call that must be made is begun in
// the prompt.
func (c *conversation) readChoice(raw []byte) error {
	const name = "tool_choice"
	if raw == nil {
		return nil
	}
	switch choice := str(raw); choice {
	case "auto":
		return nil
	case "none":
		c.tools = nil
		return nil
	case "required":
		c.forced = len(c.tools) > 0
		return nil
	}
	switch str(member(raw, "type")) {
	case "function":
		c.forced = true
		return c.keep(name, str(member(member(raw, "function"), "name")))
	case "allowed_tools":
		allowed := member(raw, "allowed_tools")
		c.forced = str(member(allowed, "mode")) == "required"
		var names []string
		e := scan.Array(member(allowed, "tools"))
		for e.Next() {
			names = append(names, str(member(member(e.Value, "function"), "name")))
		}
		return c.keep(name, names...)
	}
	return invalid(name, "tool_choice must be none, auto, required or a function among the tools.")
}

// keep leaves only these tools, each of which must be there.
func (c *conversation) keep(param string, names ...string) error {
	for _, n := range names {
		if !slices.ContainsFunc(c.tools, func(t tool) bool { return t.name == n }) {
			return invalid(param, "tool_choice names a function that is not among the tools.")
		}
	}
	c.tools = slices.DeleteFunc(c.tools, func(t tool) bool { return !slices.Contains(names, t.name) })
	c.forced = c.forced && len(c.tools) > 0
	return nil
}
