package protocol

import (
	"testing"

	"millrace/serving/protocol/field"
)

// Engines that name the texts that there are none of are recognised like those that do not, and say the same.
func TestEmptyTextsAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		first, second, want string
		which               int
	}{
		"SGLang's content":                       {`{"reasoning_content":null,"content":"a"}`, `{"reasoning_content":null,"content":"b"}`, "b", content},
		"TensorRT-LLM's content":                 {`{"content":"a","reasoning_content":""}`, `{"content":"b","reasoning_content":""}`, "b", content},
		"TensorRT-LLM's reasoning":               {`{"content":"","reasoning_content":"a"}`, `{"content":"","reasoning_content":"b"}`, "b", reasoning},
		"an empty name and a full one":           {`{"reasoning":"","reasoning_content":"a"}`, `{"reasoning":"","reasoning_content":"b"}`, "", reasoning},
		"two texts at once are not one of a run": {`{"content":"a","reasoning_content":"x"}`, `{"content":"b","reasoning_content":"x"}`, "", content},
	} {
		var k chunk
		var s shapes
		data := []byte(`{"choices":[{"index":0,"delta":` + c.first + `}]}`)
		if err := k.parse(data, ""); err != nil || string(field.Inside(k.choices[0].texts[c.which])) != "a" {
			t.Errorf("%s: %q, %v", name, k.choices[0].texts, err)
		}
		s.learn(data, &k)
		sh, text, _ := s.match([]byte(`{"choices":[{"index":0,"delta":` + c.second + `}]}`))
		if string(text) != c.want || sh != nil && sh.text != c.which {
			t.Errorf("%s: recognised %q", name, text)
		}
	}
}
