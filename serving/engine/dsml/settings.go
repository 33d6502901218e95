package dsml

import (
	"millrace/serving/engine/scan"
)

// readThinking decides whether the model thinks, and how hard. A forced call is the first thing that the model writes, so
// there is no room for thoughts: who asks for both explicitly is told, an effort alone gives way.
func (c *conversation) readThinking(f *fields, o Options) error {
	effort := str(f.effort)
	said := str(member(f.thinking, "type"))
	c.thinking = o.ThinkByDefault && effort != "none"
	switch said {
	case "enabled", "adaptive":
		c.thinking = true
	case "disabled":
		c.thinking = false
	default:
		if f.thinking != nil {
			return invalid("thinking.type", "thinking.type must be enabled, adaptive or disabled.")
		}
		c.thinking = c.thinking || effort != "" && effort != "none"
	}
	if c.forced && c.thinking {
		if said != "" {
			return invalid("tool_choice", "A forced tool call leaves no room for thinking. Send tool_choice auto, or disable thinking.")
		}
		if effort != "" {
			c.ignored = append(c.ignored, "reasoning_effort")
		}
		c.thinking = false
	}
	if !c.thinking {
		return nil
	}
	if c.effort = efforts[effort]; c.effort == "" {
		c.effort = defaultEffort
	}
	return nil
}

func (c *conversation) readFormat(raw []byte) error {
	const name = "response_format"
	switch kind := str(member(raw, "type")); kind {
	case "", "text":
	case "json_object":
		c.format, c.json = c.markup.json, true
	case "json_schema":
		schema, ok := c.markup.dump(nil, member(member(raw, "json_schema"), "schema"), 0)
		if !ok {
			return invalid(name+".json_schema.schema", "%s.json_schema.schema must be a JSON schema of at most %d levels.", name, maxDepth)
		}
		c.format = schemaIntro + string(schema)
	default:
		return invalid(name+".type", "%s.type must be one of text, json_object, json_schema.", name)
	}
	return nil
}

func (c *conversation) readStops(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		raw = append(append([]byte{'['}, raw...), ']')
	}
	e := scan.Array(raw)
	for raw != nil && e.Next() {
		s := str(e.Value)
		if s == "" || len(s) > maxStopBytes || len(c.stops) == maxStops {
			return invalid("stop", "stop must be up to %d strings of 1 to %d bytes.", maxStops, maxStopBytes)
		}
		c.stops = append(c.stops, s)
	}
	return nil
}
