package dsml_test

import (
	"testing"

	"millrace/serving/engine/dsml"
)

// What a chunk of content costs on its way, with usage on every chunk.
func BenchmarkChunk(b *testing.B) {
	s := dsml.NewStream(dsml.ParseOptions{Start: dsml.ReasoningStart, Tools: true, Stops: []string{"END"}}, nil)
	data := []byte(event(" some words", "", 12))
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = s.Add(dst[:0], data)
	}
}

// What rendering a conversation costs.
func BenchmarkRender(b *testing.B) {
	var cases []renderCase
	load(b, "render_cases.json", &cases)
	for _, c := range cases {
		if c.Name == "loop, then a question" {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := dsml.Render(c.Request, dsml.Options{ThinkByDefault: true}); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}
