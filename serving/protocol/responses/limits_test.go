package responses

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/serving/protocol"
)

// What is small to ask for is not large to answer: references, and items that declare tools, are few, and what a request
// comes to with what it refers to has the limit of bodies.
func TestWhatOneItemMakesOfOthers(t *testing.T) {
	large := []byte(`{"type":"message","role":"user","content":"` + strings.Repeat("x", 1<<20) + `"}`)
	small := []byte(`{"type":"message","role":"user","content":"x"}`)
	reference := `{"type":"item_reference","id":"msg_1"}`
	declares := `{"type":"additional_tools","tools":[{"type":"function","name":"f%d"}]}`
	var tools []string
	for i := range maxToolItems + 1 {
		tools = append(tools, fmt.Sprintf(declares, i))
	}
	for _, tt := range []struct {
		name  string
		items []string
		found []byte
		kind  fault.Kind // Internal = none
	}{
		{"references", times(reference, maxReferences), small, fault.Internal},
		{"too many references", times(reference, maxReferences+1), small, fault.Invalid},
		{"references to much", times(reference, 40), large, fault.TooLarge},
		{"tools", append(tools[:maxToolItems:maxToolItems], string(small)), nil, fault.Internal},
		{"too many items of tools", append(tools, string(small)), nil, fault.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, err := Decode([]byte(`{"model":"m","input":[` + strings.Join(tt.items, ",") + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			_, err = q.Chat(&Context{Find: func(string) ([]byte, error) { return tt.found, nil }})
			if tt.kind == fault.Internal && err != nil || tt.kind != fault.Internal && !fault.Is(err, tt.kind) {
				t.Errorf("%v", err)
			}
		})
	}
}

func times(item string, n int) []string {
	return strings.Split(strings.Repeat(item+"\n", n-1)+item, "\n")
}

// A message of many small parts is read once; tools with one name in a namespace get names of their own.
func TestManyOfTheSame(t *testing.T) {
	const n = 4096
	body := `{"model":"m","input":[{"type":"message","role":"assistant","content":[` + strings.Join(times(`{"type":"output_text","text":"ab"}`, n), ",") + `]},{"role":"user","content":"x"}]}`
	q, err := Decode([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	chat, err := q.Chat(&Context{})
	if err != nil || !bytes.Contains(chat.Body, bytes.Repeat([]byte("ab"), n)) || len(body) > protocol.MaxBodyBytes {
		t.Errorf("%v", err)
	}
	q, err = Decode([]byte(`{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","tools":[` + strings.Join(times(`{"type":"function","name":"f"}`, 3), ",") + `]}]}`))
	if err == nil {
		if chat, err = q.Chat(&Context{}); err == nil && (!bytes.Contains(chat.Body, []byte(`"n__f_2"`)) || !bytes.Contains(chat.Body, []byte(`"n__f_3"`))) {
			t.Errorf("%s", chat.Body)
		}
	}
	if err != nil && !fault.Is(err, fault.Invalid) {
		t.Errorf("one name thrice: %v", err)
	}
}
