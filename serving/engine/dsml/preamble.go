package dsml

const schemaIntro = "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"

// The words of this file and of token.go are those that the models were trained on: DeepSeek's own, as deepseek-recipe has
// them (MIT License, Copyright (c) 2026 DeepSeek).

// head writes what stands before the dialogue: the effort of thinking, the system prompt, the tools, the answer's format.
func (w *writer) head(c *conversation, system string) {
	m := c.markup
	effort := ""
	if c.thinking {
		effort = m.effort[c.effort]
	}
	if m.systemToken && effort+system+c.format == "" && len(c.tools) == 0 {
		return
	}
	if m.systemToken {
		w.special(tokenSystem)
	}
	w.text(effort, system)
	if len(c.tools) > 0 {
		w.toolList(c)
	}
	w.text(c.format)
}

// toolList tells the model how to call tools, and which there are.
func (w *writer) toolList(c *conversation) {
	m := c.markup
	w.text("\n\n## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by writing a \"")
	w.open(m, m.calls)
	w.text("\" block like the following:\n\n")
	w.open(m, m.calls)
	w.text("\n")
	w.open(m, "invoke", ` name="$TOOL_NAME"`)
	w.text("\n")
	w.open(m, "parameter", ` name="$PARAMETER_NAME" string="true|false"`)
	w.text("$PARAMETER_VALUE")
	w.shut(m, "parameter")
	w.text("\n...\n")
	w.shut(m, "invoke")
	w.text("\n")
	w.open(m, "invoke", ` name="$TOOL_NAME2"`)
	w.text("\n...\n")
	w.shut(m, "invoke")
	w.text("\n")
	w.shut(m, m.calls)
	w.text("\n\nString parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n",
		"If thinking_mode is enabled (triggered by ")
	w.special(tokenThink)
	w.text("), you MUST output your complete reasoning inside ")
	w.special(tokenThink)
	w.text("...")
	w.special(tokenThinkEnd)
	w.text(" BEFORE any tool calls or final response.\n\nOtherwise, output directly after ")
	w.special(tokenThinkEnd)
	w.text(" with tool calls or final response.\n\n### Available Tool Schemas\n\n")
	for _, t := range c.tools {
		w.text(t.schema, "\n")
	}
	w.text("\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n")
}
