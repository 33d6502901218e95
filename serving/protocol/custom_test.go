package protocol

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"millrace/serving/engine/scan"
)

// Cut anywhere, the arguments give the same input, and every piece of it is the inside of a JSON string.
func TestCustomInput(t *testing.T) {
	for args, want := range map[string]string{
		`{"input":"print(\"hi\")\n"}`:                         "print(\"hi\")\n",
		` { "other" : [1,{"input":"x"}] , "input" : "a\\b" }`: `a\b`,
		`{"input":"\ud83d\ude00 \u00e9 😀"}`:                   "😀 é 😀",
		`{"input":""}`:                                        "",
		`{"input":"cut off`:                                   "cut off",
		"{\"input\":\"a\nb\tc\"}":                             "a\nb\tc", // models leave control characters as they are
		`{"input":"C:\qu \u12\"x\""}`:                         `C:\qu \u12"x"`,
		`{"input":"\ud83dx"}`:                                 "\ufffdx",
		`not an object`:                                       "not an object",
		`{"code":"x"}`:                                        `{"code":"x"}`,
		``:                                                    "",
	} {
		quoted, _ := json.Marshal(args)
		inner := quoted[1 : len(quoted)-1]
		for cut := range len(inner) + 1 {
			if cut > 0 && inner[cut-1] == '\\' || !utf8.Valid(inner[:cut]) || !json.Valid([]byte(`"`+string(inner[:cut])+`"`)) || !json.Valid([]byte(`"`+string(inner[cut:])+`"`)) {
				continue // engines cut between characters
			}
			var x CustomInput
			got := ""
			for _, piece := range [][]byte{x.Add(nil, inner[:cut]), x.Add(nil, inner[cut:]), x.Rest(nil)} {
				var s string
				if err := json.Unmarshal([]byte(`"`+string(piece)+`"`), &s); err != nil {
					t.Fatalf("%s cut at %d: %q: %v", args, cut, piece, err)
				}
				got += s
			}
			if got != want {
				t.Errorf("%s cut at %d: %q, want %q", args, cut, got, want)
			}
		}
	}
}

// However long the arguments are and however they come, the input is the same.
func TestCustomInputOfLongArguments(t *testing.T) {
	long := strings.Repeat("x", 2*maxCustomSearch)
	for args, want := range map[string]string{`{\"input\":\"` + long + `\"}`: long, `{\"a\":\"` + long + `\",\"input\":\"y\"}`: `{\"a\":\"` + long + `\",\"input\":\"y\"}`} {
		for _, size := range []int{len(args), 100} {
			var x CustomInput
			var got []byte
			for piece := range slices.Chunk([]byte(args), size) {
				got = x.Add(got, piece)
			}
			if got = x.Rest(got); string(got) != want {
				t.Errorf("in pieces of %d: %.40q of %d bytes, want %.40q of %d", size, got, len(got), want, len(want))
			}
		}
	}
}

// The input is the same wherever its arguments are cut, and always the inside of a string.
func FuzzCustomInput(f *testing.F) {
	for _, s := range []string{`{"input":"one\\ntwo"}`, ` { "input" : "\\ud83d\\ude00\\q" , "x":1}`, `{"other":1}`, `plain`, "{\"input\":\"raw\n\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, arguments string) {
		quoted := scan.Quote(nil, arguments)
		text := quoted[1 : len(quoted)-1]
		want := InputOf(text)
		if whole := append(append([]byte{'"'}, want...), '"'); !json.Valid(whole) {
			t.Fatalf("%s", whole)
		}
		var x CustomInput
		var got []byte
		for i := range text {
			got = x.Add(got, text[i:i+1])
		}
		if got = x.Rest(got); string(got) != string(want) {
			t.Fatalf("in pieces %q, whole %q", got, want)
		}
	})
}
