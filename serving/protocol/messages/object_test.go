package messages

import (
	"encoding/json"
	"testing"
)

func TestObjectsThatBreakOffKeepWhatIsFinished(t *testing.T) {
	for text, want := range map[string]string{
		``:                              `{}`,
		`  {"a":1}  `:                   `{"a":1}`,
		`{"a":1}{"a":2}`:                `{"a":1}`,
		`{"a":1}</tool_call>`:           `{"a":1}`,
		`{"a":1,"b":"xy`:                `{"a":1}`,
		`{"a":1,"b"`:                    `{"a":1}`,
		`{"a":1,"b":`:                   `{"a":1}`,
		`{"a":12`:                       `{"a":12}`,
		`{"a":1.`:                       `{}`,
		`{"a":12,`:                      `{"a":12}`,
		`{"a":tru`:                      `{}`,
		`{"a":[1,{"b":"c"},{"d":"e`:     `{"a":[1,{"b":"c"},{}]}`,
		`{"a":{"b":[`:                   `{"a":{"b":[]}}`,
		`{"a":"\u00e9","b":"\u00`:       `{"a":"\u00e9"}`,
		`{"a":-0.5e+3 , "b":1e,"c":2}`:  `{"a":-0.5e+3}`,
		`{"a":01}`:                      `{"a":0}`,
		`{"a":1,}`:                      `{"a":1}`,
		`{a:1}`:                         `{}`,
		`{"a":"x` + "\n" + `","b":1}`:   `{}`,
		`[1,2]`:                         `{}`,
		`"{}"`:                          `{}`,
		`null`:                          `{}`,
		`{"a":[1,2],"b":null,"c":false`: `{"a":[1,2],"b":null,"c":false}`,
		`{"a":{},"b":[],"c":[[]]}`:      `{"a":{},"b":[],"c":[[]]}`,
		`{"a":[}`:                       `{"a":[]}`,
		`{"a":{]`:                       `{"a":{}}`,
		`{"a":1]`:                       `{"a":1}`,
	} {
		var r objectReader
		if got := string(r.appendObject(nil, []byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Whatever comes, what is kept is an object; of an object it is all, and every beginning of it is taken whole.
func FuzzObject(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,true,null,"x\u00e9\n"],"b":{"c":{}}}`, `{"a":"`, `{"a":1}x`, `[{}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r objectReader
		got := r.appendObject(nil, text)
		var object map[string]json.RawMessage
		if err := json.Unmarshal(got, &object); err != nil || object == nil {
			t.Fatalf("%q gave %q: %v", text, got, err)
		}
		if json.Unmarshal(text, &object) != nil || len(text) == 0 || depth(text) > maxDepth || !json.Valid(text) || text[0] != '{' {
			return
		}
		for i := range text {
			r.reset()
			if n := len(r.take(text[:i])); n != i && !r.whole() {
				t.Fatalf("%q: %d of the first %d bytes taken", text, n, i)
			}
		}
		r.reset()
		if r.take(text); !r.whole() {
			t.Fatalf("%q is not whole", text)
		}
	})
}

func depth(text []byte) (n int) {
	for _, c := range text {
		if c == '{' || c == '[' {
			n++
		}
	}
	return n
}
