package scan_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"millrace/serving/engine/scan"
)

func TestMembersSeeWhatDecodingSees(t *testing.T) {
	for _, text := range []string{
		`{}`, ` { } `, `{"a":1}`, `{ "a" : 1 , "b":[1,{"c":"}"}] , "d":"\"\\" }`, `{"mod\u0065l":"x","e":null,"f":-1.5e3}`,
		`{"a":{"b":{"c":[[[]]]}},"s":"[{\\"}`, `{"":"empty name"}`,
	} {
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		m := scan.Object([]byte(text))
		got := 0
		for m.Next() {
			got++
			if !bytes.Equal(want[string(m.Key)], m.Value) {
				t.Errorf("%s: %q = %s, want %s", text, m.Key, m.Value, want[string(m.Key)])
			}
		}
		if m.Err() != nil || got != len(want) {
			t.Errorf("%s: %d members, error %v", text, got, m.Err())
		}
	}
}

func TestElements(t *testing.T) {
	e := scan.Array([]byte(` [1, "a,]", {"b":[2]} ,[] ] `))
	var got []string
	for e.Next() {
		got = append(got, string(e.Value))
	}
	want := []string{`1`, `"a,]"`, `{"b":[2]}`, `[]`}
	if e.Err() != nil || len(got) != len(want) {
		t.Fatalf("%q, %v", got, e.Err())
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("element %d is %s, want %s", i, got[i], want[i])
		}
	}
}

func TestBrokenTextIsAnError(t *testing.T) {
	for _, text := range []string{``, `[`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":"x`, `{"a":1 "b":2}`, `{a:1}`, `{"a":}`, `null`, `"x"`} {
		m := scan.Object([]byte(text))
		for m.Next() {
		}
		if m.Err() == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestQuoteAndTextAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		raw := scan.Quote(nil, s)
		if !json.Valid(raw) {
			t.Fatalf("%q quotes to %s", s, raw)
		}
		got, ok := scan.Text(nil, raw)
		if !ok || string(got) != s {
			t.Fatalf("%q came back as %q", s, got)
		}
	})
}

func FuzzText(f *testing.F) {
	for _, s := range []string{`"a"`, `"\n\t\u00e9"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83d\u0041"`, `"\\\""`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, ok := scan.Text(nil, raw)
		var want string
		if json.Unmarshal(raw, &want) != nil || raw[0] != '"' || !json.Valid(raw) || raw[len(raw)-1] != '"' {
			return
		}
		if !ok || (string(got) != want && !bytes.ContainsRune([]byte(want), 0xFFFD)) {
			t.Fatalf("%s is %q, want %q", raw, got, want)
		}
	})
}

func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"\\\""}],"c":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m := scan.Object(text)
		n := 0
		for m.Next() {
			if n++; !bytes.Equal(text[m.End-len(m.Value):m.End], m.Value) {
				t.Fatal("Value and End differ")
			}
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) == nil && want != nil && (m.Err() != nil || n < len(want)) {
			t.Fatalf("%d of %d members, %v", n, len(want), m.Err())
		}
	})
}
