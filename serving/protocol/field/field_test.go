package field_test

import (
	"errors"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/serving/protocol/field"
)

func TestRead(t *testing.T) {
	names := []string{"a", "b", "c"}
	for _, tt := range []struct{ raw, a, b, odd, param string }{
		{`{"a":1,"b":"x"}`, `1`, `"x"`, "", ""},
		{`{"b":null,"x":1,"a":{"b":2},"y":null}`, `{"b":2}`, ``, "x", ""},
		{`{"\u0061":1,"X":[]}`, `1`, ``, "X", ""},
		{`{}`, ``, ``, "", ""},
		{`{"a":1,"a":1}`, `1`, ``, "", "a"},
		{`{"b":null,"\u0062":null}`, ``, ``, "", "b"},
		{`{"x":1,"x":2}`, ``, ``, "x x", ""}, // nobody reads it
		{`[1]`, ``, ``, "", "?"}, {``, ``, ``, "", "?"}, {`"a"`, ``, ``, "", "?"},
	} {
		var in [3][]byte
		var odd []string
		err := field.Read([]byte(tt.raw), names, in[:], func(name []byte) { odd = append(odd, string(name)) })
		var f *fault.Fault
		if errors.As(err, &f) != (tt.param != "") || f != nil && tt.param != "?" && f.Param != tt.param {
			t.Errorf("%s: %v", tt.raw, err)
		}
		if got := strings.Join(odd, " "); err == nil && (string(in[0]) != tt.a || string(in[1]) != tt.b || got != tt.odd) {
			t.Errorf("%s: %q, odd %q", tt.raw, in, got)
		}
	}
}

func TestWithin(t *testing.T) {
	err := field.Within("messages", field.Within(field.At("", 3), field.Within("content", field.Within("[1]", field.Invalid("", "No.")))))
	if f := fault.Of(err); f.Param != "messages[3].content[1]" {
		t.Error(f.Param)
	}
	if plain := errors.New("x"); field.Within("a", plain) != plain || field.Within("a", nil) != nil {
		t.Error("only faults have places")
	}
}

func TestIgnored(t *testing.T) {
	var g field.Ignored
	for range 2 {
		for _, name := range []string{"a", "b c", "x\r\ny", "é", `q"`, strings.Repeat("n", 500)} {
			g.Add("tools[].", []byte(name))
		}
		g.Name("a")
	}
	want := `tools[].a, tools[].b c, tools[]."x\r\ny", tools[]."\u00e9", tools[]."q\"", tools[]."` + strings.Repeat("n", 64) + `\u2026", a`
	if got := strings.Join(g, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
