package responsestest

import (
	"encoding/json"
	"fmt"
)

// rule says what a member may be.
type rule func(v any) bool

func isText(v any) bool   { _, ok := v.(string); return ok }
func isBool(v any) bool   { _, ok := v.(bool); return ok }
func isNumber(v any) bool { _, ok := v.(json.Number); return ok }
func isObject(v any) bool { _, ok := v.(map[string]any); return ok }
func isList(v any) bool   { _, ok := v.([]any); return ok }
func isInt(v any) bool {
	n, ok := v.(json.Number)
	if !ok {
		return false
	}
	_, err := n.Int64()
	return err == nil
}

func orNull(r rule) rule { return func(v any) bool { return v == nil || r(v) } }

func among(values ...string) rule {
	return func(v any) bool {
		for _, want := range values {
			if v == want {
				return true
			}
		}
		return false
	}
}

// resource is every member that a response object must have.
var resource = map[string]rule{
	"id": isText, "object": among("response"), "created_at": isInt, "completed_at": orNull(isInt),
	"status":             among("queued", "in_progress", "completed", "incomplete", "failed", "cancelled"),
	"incomplete_details": orNull(isObject), "model": isText, "previous_response_id": orNull(isText), "instructions": orNull(isText),
	"output": isList, "error": orNull(isObject), "tools": isList, "tool_choice": isChoice, "truncation": among("auto", "disabled"),
	"parallel_tool_calls": isBool, "text": isTextField, "top_p": isNumber, "presence_penalty": isNumber, "frequency_penalty": isNumber,
	"top_logprobs": isInt, "temperature": isNumber, "reasoning": isReasoning, "usage": orNull(isObject), "max_output_tokens": orNull(isInt),
	"max_tool_calls": orNull(isInt), "store": isBool, "background": isBool, "service_tier": isText, "metadata": isObject,
	"safety_identifier": orNull(isText), "prompt_cache_key": orNull(isText),
}

func isReasoning(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return v == nil
	}
	return has(m, map[string]rule{"effort": orNull(among("none", "minimal", "low", "medium", "high", "xhigh", "max")),
		"summary": orNull(among("auto", "concise", "detailed"))}) == nil
}

func isTextField(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	if verbosity, given := m["verbosity"]; given && !among("low", "medium", "high")(verbosity) {
		return false
	}
	f, _ := m["format"].(map[string]any)
	switch f["type"] {
	case "text", "json_object":
		return len(f) == 1
	case "json_schema":
		return has(f, map[string]rule{"name": isText, "description": orNull(isText), "schema": isObject, "strict": isBool}) == nil
	}
	return false
}

func isChoice(v any) bool {
	if m, ok := v.(map[string]any); ok {
		switch m["type"] {
		case "function", "custom":
			return isText(m["name"])
		case "allowed_tools":
			return isList(m["tools"]) && among("none", "auto", "required")(m["mode"])
		}
		return false
	}
	return among("none", "auto", "required")(v)
}

// has checks that every member is there and right.
func has(m map[string]any, rules map[string]rule) error {
	for name, r := range rules {
		v, given := m[name]
		if !given {
			return fmt.Errorf("%s is missing", name)
		}
		if !r(v) {
			return fmt.Errorf("%s is wrong: %v", name, v)
		}
	}
	return nil
}

func (a *Answer) readResponse(m map[string]any) error {
	if err := has(m, resource); err != nil {
		return err
	}
	a.Response, a.Items, a.Usage = m, nil, nil
	a.Status, _ = m["status"].(string)
	for i, t := range m["tools"].([]any) {
		if err := checkTool(t); err != nil {
			return fmt.Errorf("tools[%d]: %w", i, err)
		}
	}
	for i, v := range m["output"].([]any) {
		item, err := readItem(v)
		if err != nil {
			return fmt.Errorf("output[%d]: %w", i, err)
		}
		a.Items = append(a.Items, item)
	}
	if err := a.checkStatus(m); err != nil {
		return err
	}
	return a.readUsage(m["usage"])
}

// checkStatus compares the status with what must and must not stand beside it.
func (a *Answer) checkStatus(m map[string]any) error {
	details, _ := m["incomplete_details"].(map[string]any)
	failure, _ := m["error"].(map[string]any)
	switch {
	case (a.Status == "completed") != (m["completed_at"] != nil):
		return fmt.Errorf("status %s with completed_at %v", a.Status, m["completed_at"])
	case (a.Status == "incomplete") != (details != nil) || details != nil && !isText(details["reason"]):
		return fmt.Errorf("status %s with incomplete_details %v", a.Status, details)
	case (a.Status == "failed") != (failure != nil) || failure != nil && !(isText(failure["code"]) && isText(failure["message"])):
		return fmt.Errorf("status %s with error %v", a.Status, failure)
	case (a.Status == "completed" || a.Status == "incomplete") && m["usage"] == nil:
		return fmt.Errorf("an answer without usage")
	}
	for i, item := range a.Items {
		switch {
		case item.Status == "in_progress" && a.Status != "in_progress":
			return fmt.Errorf("output[%d] is in progress in a response that has ended", i)
		case item.Status == "incomplete" && (i < len(a.Items)-1 || a.Status == "completed"):
			return fmt.Errorf("output[%d] is incomplete", i)
		}
	}
	return nil
}

func checkTool(v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("no object")
	}
	switch m["type"] {
	case "function":
		return has(m, map[string]rule{"name": isText, "description": orNull(isText), "parameters": orNull(isObject), "strict": orNull(isBool)})
	case "custom":
		return has(m, map[string]rule{"name": isText})
	case "namespace":
		return has(m, map[string]rule{"name": isText, "tools": isList})
	}
	return fmt.Errorf("a tool of type %v", m["type"])
}

func (a *Answer) readUsage(v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	in, _ := m["input_tokens_details"].(map[string]any)
	out, _ := m["output_tokens_details"].(map[string]any)
	var u Usage
	for _, n := range []struct {
		from map[string]any
		name string
		into *int64
	}{{m, "input_tokens", &u.Input}, {in, "cached_tokens", &u.Cached}, {m, "output_tokens", &u.Output}, {out, "reasoning_tokens", &u.Reasoning}, {m, "total_tokens", &u.Total}} {
		if !isInt(n.from[n.name]) {
			return fmt.Errorf("usage: %s is %v", n.name, n.from[n.name])
		}
		*n.into, _ = n.from[n.name].(json.Number).Int64()
	}
	if u.Total != u.Input+u.Output || u.Cached > u.Input || u.Reasoning > u.Output {
		return fmt.Errorf("usage does not add up: %+v", u)
	}
	a.Usage = &u
	return nil
}
