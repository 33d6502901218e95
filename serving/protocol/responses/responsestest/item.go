package responsestest

import (
	"fmt"
	"strings"
)

var anyStatus = among("in_progress", "completed", "incomplete")

// readItem checks an output item. Members that the specification does not know are refused.
func readItem(v any) (Item, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return Item{}, fmt.Errorf("an item that is no object: %v", v)
	}
	item := Item{raw: m}
	item.Type, _ = m["type"].(string)
	item.ID, _ = m["id"].(string)
	item.Status, _ = m["status"].(string)
	if item.ID == "" {
		return item, fmt.Errorf("an item without an id")
	}
	var err error
	switch item.Type {
	case "message":
		err = item.message(m)
	case "function_call":
		err = item.call(m, "arguments", "fc_")
	case "custom_tool_call":
		err = item.call(m, "input", "ctc_")
	case "reasoning":
		err = item.reasoning(m)
	default:
		err = fmt.Errorf("an item of type %q", item.Type)
	}
	return item, err
}

func only(m map[string]any, names ...string) error {
	for name := range m {
		if !among(names...)(name) {
			return fmt.Errorf("the member %q is not known", name)
		}
	}
	return nil
}

func (item *Item) message(m map[string]any) error {
	if !strings.HasPrefix(item.ID, "msg_") {
		return fmt.Errorf("a message with the id %q", item.ID)
	}
	if err := has(m, map[string]rule{"status": anyStatus, "role": among("assistant"), "content": isList}); err != nil {
		return err
	}
	for i, c := range m["content"].([]any) {
		part, _ := c.(map[string]any)
		if err := item.part(part); err != nil {
			return fmt.Errorf("content[%d]: %w", i, err)
		}
	}
	return only(m, "id", "type", "status", "role", "content", "phase")
}

func (item *Item) part(part map[string]any) error {
	switch part["type"] {
	case "output_text":
		if err := has(part, map[string]rule{"text": isText, "annotations": isList, "logprobs": isList}); err != nil {
			return err
		}
		item.Text += part["text"].(string)
		list := part["logprobs"].([]any)
		item.Logprobs = append(item.Logprobs, list...)
		if err := checkLogprobs(list); err != nil {
			return err
		}
		return only(part, "type", "text", "annotations", "logprobs")
	case "refusal":
		if err := has(part, map[string]rule{"refusal": isText}); err != nil {
			return err
		}
		item.Refusal += part["refusal"].(string)
		return only(part, "type", "refusal")
	}
	return fmt.Errorf("a part of type %v", part["type"])
}

func checkLogprobs(list []any) error {
	for i, v := range list {
		m, _ := v.(map[string]any)
		if err := has(m, map[string]rule{"token": isText, "logprob": isNumber, "bytes": isList, "top_logprobs": isList}); err != nil {
			return fmt.Errorf("logprobs[%d]: %w", i, err)
		}
		for _, t := range m["top_logprobs"].([]any) {
			top, _ := t.(map[string]any)
			if err := has(top, map[string]rule{"token": isText, "logprob": isNumber, "bytes": isList}); err != nil {
				return fmt.Errorf("logprobs[%d].top_logprobs: %w", i, err)
			}
		}
	}
	return nil
}

func (item *Item) call(m map[string]any, argument, prefix string) error {
	if !strings.HasPrefix(item.ID, prefix) {
		return fmt.Errorf("a call with the id %q", item.ID)
	}
	if err := has(m, map[string]rule{"status": anyStatus, "call_id": isText, "name": isText, argument: isText}); err != nil {
		return err
	}
	item.CallID, item.Name, item.Argument = m["call_id"].(string), m["name"].(string), m[argument].(string)
	if item.CallID == "" || item.Name == "" {
		return fmt.Errorf("a call without call_id or name")
	}
	if space, given := m["namespace"]; given {
		if item.Space, _ = space.(string); item.Space == "" {
			return fmt.Errorf("an empty namespace")
		}
	}
	return only(m, "id", "type", "status", "call_id", "name", "namespace", argument)
}

func (item *Item) reasoning(m map[string]any) error {
	if !strings.HasPrefix(item.ID, "rs_") {
		return fmt.Errorf("reasoning with the id %q", item.ID)
	}
	summary, ok := m["summary"].([]any)
	if !ok {
		return fmt.Errorf("reasoning without a summary")
	}
	read := func(list []any, kind string, into *string) error {
		for _, v := range list {
			part, _ := v.(map[string]any)
			if part["type"] != kind || !isText(part["text"]) {
				return fmt.Errorf("a part of reasoning: %v, not %s", v, kind)
			}
			*into += part["text"].(string)
		}
		return nil
	}
	if err := read(summary, "summary_text", &item.Summary); err != nil {
		return err
	}
	if content, given := m["content"]; given {
		list, ok := content.([]any)
		if !ok {
			return fmt.Errorf("reasoning's content is no list")
		}
		if err := read(list, "reasoning_text", &item.Reasoning); err != nil {
			return err
		}
	}
	if sealed, given := m["encrypted_content"]; given {
		if item.Encrypted, _ = sealed.(string); item.Encrypted == "" {
			return fmt.Errorf("encrypted_content is empty")
		}
	}
	return only(m, "id", "type", "summary", "content", "encrypted_content")
}
