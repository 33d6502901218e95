package protocol

import (
	"strconv"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// Functions as they were before tools: engines get tools, the client sees functions. One call an answer.

// functions makes tools of the member functions.
func functions(r *chatReader, name string, v []byte) error {
	r.functionList = v
	out := []byte{'['}
	e := scan.Array(v)
	for n := 0; e.Next(); n++ {
		at := field.At(name, n)
		if n == maxTools {
			return invalid(name, "There are more than %d functions.", maxTools)
		}
		var f [4]found
		edits := len(r.edits)
		if err := r.object(name+"[].", e.Value, declaredMembers, f[:]); err != nil {
			return field.Within(at, err)
		}
		fn := field.Text(f[0].value)
		if fn == "" {
			return field.WantType(at, "a function with a name")
		}
		if err := CheckToolName(fn); err != nil {
			return field.Within(at, err)
		}
		if n > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, `{"type":"function","function":`...), r.edited(e.Value, r.edits[edits:])...), '}')
		r.tools = append(r.tools, fn)
	}
	if e.Err() != nil || len(r.tools) == 0 {
		return field.WantType(name, "an array of at least one function")
	}
	r.req.Legacy = true
	r.added = append(append(append(r.added, `,"tools":`...), out...), `],"parallel_tool_calls":false`...)
	r.dropped = append(r.dropped, name)
	return nil
}

// functionCall makes tool_choice of the member function_call. It is checked when the functions are known.
func functionCall(r *chatReader, name string, v []byte) error {
	r.functionChoice = v
	r.dropped = append(r.dropped, name)
	return nil
}

// checkLegacy checks functions and function_call against each other and against tools.
func (r *chatReader) checkLegacy() error {
	if r.functionList == nil {
		if r.functionChoice != nil {
			return invalid("function_call", "function_call is only allowed with functions.")
		}
		return nil
	}
	if r.toolList != nil || r.choice != nil {
		return invalid("functions", "Send either functions or tools, not both.")
	}
	switch v := r.functionChoice; {
	case v == nil:
	case string(v) == `"none"`, string(v) == `"auto"`:
		r.added = append(append(r.added, `,"tool_choice":`...), v...)
	case field.IsObject(v):
		fn, err := r.named("function_call.", v)
		if err != nil {
			return field.Within("function_call", err)
		}
		if err := r.declared("function_call", fn); err != nil {
			return err
		}
		r.added = appendFunctionName(append(r.added, `,"tool_choice":`...), fn)
	default:
		return field.WantType("function_call", "none, auto or a function among the functions")
	}
	return nil
}

// legacyID is the id of the latest call of a function in the history.
func (r *chatReader) legacyID() string { return "call_function_" + strconv.Itoa(r.legacyCalls) }

// legacyCall puts tool_calls in the place of an earlier answer's function_call.
func (r *chatReader) legacyCall(msg *message) error {
	const name = "function_call"
	if msg.calls.value != nil {
		return invalid(name, "An assistant message has either function_call or tool_calls.")
	}
	var f [2]found
	if err := r.object("messages[].function_call.", msg.function.value, functionMembers, f[:]); err != nil {
		return field.Within(name, err)
	}
	fn, args := f[0].value, f[1].value
	if len(fn) <= len(`""`) || !field.IsString(fn) || !field.IsString(args) {
		return field.WantType(name, "an object with name and arguments")
	}
	r.req.TextBytes += int64(len(fn) + len(args))
	r.legacyCalls++
	out := append([]byte(`"tool_calls":[{"id":"`), r.legacyID()...)
	out = append(append(append(out, `","type":"function","function":{"name":`...), fn...), `,"arguments":`...)
	r.edits = append(r.edits, edit{msg.function.start, msg.function.end, string(append(append(out, args...), `}}]`...))})
	return nil
}

// legacyResult makes a tool's message of a function's.
func (r *chatReader) legacyResult(msg *message) error {
	switch {
	case msg.name.value == nil:
		return invalid("name", "A function message needs the name of its function.")
	case r.legacyCalls == 0:
		return invalid("role", "A function message answers an earlier function_call.")
	}
	r.replace(msg.role.value, `"tool","tool_call_id":"`+r.legacyID()+`"`)
	return nil
}
