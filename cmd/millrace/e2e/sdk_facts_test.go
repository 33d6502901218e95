package e2e

import (
	"encoding/json"
	"reflect"
	"testing"
)

// sdkFacts is what must be seen of what is beside the three APIs.
var sdkFacts = map[string]string{
	"completions":  `{"finish":["length","length"],"generated":10,"same":true}`,
	"several":      `{"finish":["stop","stop"],"different":2}`,
	"legacy":       `{"finish":"function_call","name":"get_time"}`,
	"custom":       `{"chat":["custom","code_exec","simulated"],"responses":["custom_tool_call","code_exec","simulated","simulated"]}`,
	"embeddings":   `{"indices":[0,1],"differ":true,"same":true,"used":true}`,
	"batch":        `{"status":"completed","counts":{"completed":2,"failed":0,"total":2},"done":[["one",200,5],["two",200,5]],"input":true,"deleted":true}`,
	"conversation": `{"grows":true,"roles":["assistant","assistant","user","user"]}`,
	"resume":       `{"contiguous":true,"last":"response.completed"}`,
	"compact":      `{"counted":true,"has":"compaction","status":"completed"}`,
	"socket":       `{"events":["response.created","response.completed","response.created","response.completed"]}`,
}

func sameFacts(t *testing.T, got json.RawMessage, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &g); err != nil || !reflect.DeepEqual(g, w) {
		t.Errorf("%s, want %s, %v", got, want, err)
	}
}
