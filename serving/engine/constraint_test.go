package engine_test

import (
	"encoding/json"
	"testing"

	"millrace/internal/fault"
	"millrace/serving/engine"
)

const (
	asJSON   = `"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object"}}}`
	asObject = `"response_format":{"type":"json_object"}`
)

// One set of names for the client, each engine's own for the engine.
func TestConstraintsAreTranslated(t *testing.T) {
	const refused = ""
	families := []engine.Family{engine.VLLM, engine.SGLang, engine.TRTLLM, engine.LlamaCpp, engine.OpenAI}
	for _, c := range []struct {
		sent []string // the same thing in several names
		want [5]string
	}{
		{[]string{`"structured_outputs":{"json":{"type":"object"}}`},
			[5]string{`"structured_outputs":{"json":{"type":"object"}}`, asJSON, asJSON, asJSON, asJSON}},
		{[]string{`"guided_json":{"type":"object"}`, `"guided_json":"{\"type\":\"object\"}"`, `"json_schema":{"type":"object"},"response_format":{"type":"text"}`},
			[5]string{`"structured_outputs":{"json":{"type":"object"}}`, asJSON, asJSON, asJSON, asJSON}},
		{[]string{`"structured_outputs":{"json_object":true,"json":null}`},
			[5]string{`"structured_outputs":{"json_object":true,"json":null}`, asObject, asObject, asObject, asObject}},
		{[]string{`"regex":"[0-9]+"`}, [5]string{`"structured_outputs":{"regex":"[0-9]+"}`, `"regex":"[0-9]+"`,
			`"response_format":{"type":"regex","regex":"[0-9]+"}`, refused, `"regex":"[0-9]+"`}},
		{[]string{`"guided_regex":"[0-9]+"`}, [5]string{`"structured_outputs":{"regex":"[0-9]+"}`, `"regex":"[0-9]+"`,
			`"response_format":{"type":"regex","regex":"[0-9]+"}`, refused, `"guided_regex":"[0-9]+"`}},
		{[]string{`"ebnf":"root ::= \"a\""`}, [5]string{`"structured_outputs":{"grammar":"root ::= \"a\""}`, `"ebnf":"root ::= \"a\""`,
			`"response_format":{"type":"ebnf","ebnf":"root ::= \"a\""}`, `"grammar":"root ::= \"a\""`, `"ebnf":"root ::= \"a\""`}},
		{[]string{`"guided_choice":["a.b","c"]`}, [5]string{`"structured_outputs":{"choice":["a.b","c"]}`, `"regex":"(a\\.b|c)"`,
			`"response_format":{"type":"regex","regex":"(a\\.b|c)"}`, `"grammar":"root ::= \"a.b\" | \"c\""`, `"guided_choice":["a.b","c"]`}},
		{[]string{`"structured_outputs":{"structural_tag":"{}"}`}, [5]string{`"structured_outputs":{"structural_tag":"{}"}`, refused, refused, refused, `"structured_outputs":{"structural_tag":"{}"}`}},
		{[]string{`"guided_json":null`, `"structured_outputs":null`, `"structured_outputs":{"json_object":false}`}, [5]string{`"n":1`, `"n":1`, `"n":1`, `"n":1`, `"n":1`}},
		{[]string{`"response_format":{"type":"json_object"}`}, [5]string{asObject, asObject, asObject, asObject, asObject}},
	} {
		for _, sent := range c.sent {
			for i, family := range families {
				out, err := driver(t, family).PrepareChat(nil, []byte(`{"n":1,`+sent+`}`), engine.ChatParams{Model: "m"})
				if c.want[i] == refused {
					if !fault.Is(err, fault.Invalid) || fault.Of(err).Param == "" {
						t.Errorf("%s of %s: %s, %v", sent, family, out, err)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s of %s: %v", sent, family, err)
					continue
				}
				plain, err := driver(t, family).PrepareChat(nil, []byte(`{"n":1}`), engine.ChatParams{Model: "m"})
				if err != nil {
					t.Fatal(err)
				}
				want := members(t, plain)
				for name, v := range members(t, []byte("{"+c.want[i]+"}")) {
					want[name] = v
				}
				if got := members(t, out); !equal(got, want) {
					t.Errorf("%s of %s: %s, want %s", sent, family, out, c.want[i])
				}
			}
		}
	}
}

func members(t *testing.T, object []byte) (m map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(object, &m); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	return m
}

func equal(a, b map[string]json.RawMessage) bool {
	for name, v := range a {
		if string(b[name]) != string(v) {
			return false
		}
	}
	return len(a) == len(b)
}

func TestWrongConstraintsAreRefused(t *testing.T) {
	for body, param := range map[string]string{
		`{"regex":1}`:                                            "regex",
		`{"guided_json":[]}`:                                     "guided_json",
		`{"guided_json":"not json"}`:                             "guided_json",
		`{"guided_choice":[]}`:                                   "guided_choice",
		`{"structured_outputs":{"choice":"a"}}`:                  "structured_outputs.choice",
		`{"structured_outputs":[]}`:                              "structured_outputs",
		`{"regex":"a","ebnf":"b"}`:                               "ebnf",
		`{"structured_outputs":{"regex":"a","json":{}}}`:         "structured_outputs.json",
		`{"regex":"a","response_format":{"type":"json_object"}}`: "response_format",
	} {
		for _, family := range engine.Families() {
			_, err := driver(t, family).PrepareChat(nil, []byte(body), engine.ChatParams{Model: "m"})
			if !fault.Is(err, fault.Invalid) || fault.Of(err).Param != param {
				t.Errorf("%s of %s: %v", body, family, err)
			}
		}
	}
}

// Constraints are translated or refused; only other members are left out, and those a client is told of.
func TestDropsNamesWhatIsLeftOut(t *testing.T) {
	for family, dropped := range map[engine.Family][]string{
		engine.TRTLLM:   {"xtc_threshold", "mirostat", "continue_final_message"},
		engine.SGLang:   {"return_meta_info"},
		engine.LlamaCpp: {"n_predict"},
		engine.OpenAI:   nil,
	} {
		for _, name := range append(dropped, "top_k", "regex", "guided_json", "structured_outputs") {
			out, err := driver(t, family).PrepareChat(nil, []byte(`{"`+name+`":null}`), engine.ChatParams{Model: "m"})
			if err != nil {
				t.Fatal(err)
			}
			_, kept := members(t, out)[name]
			left := !kept && name != "regex" && name != "guided_json" && name != "structured_outputs"
			if driver(t, family).Drops(name) != left {
				t.Errorf("%s drops %s: %v; %s", family, name, left, out)
			}
		}
	}
}

// A prompt of text has no salt at TensorRT-LLM: it is not sent where it could meet another tenant's.
func TestUnsaltedPromptsAreRefused(t *testing.T) {
	d := driver(t, engine.TRTLLM)
	if _, err := d.PrepareChat(nil, []byte(`{"prompt":"x"}`), engine.ChatParams{Model: "m", Salt: "s"}); !fault.Is(err, fault.Invalid) || !d.Caps().ChatOnly {
		t.Error(err)
	}
}
