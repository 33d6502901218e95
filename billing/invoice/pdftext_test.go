package invoice

import (
	"strings"
	"testing"

	"golang.org/x/image/font/gofont/goregular"
	"pgregory.net/rapid"
)

// Whatever is wrapped fits the line, and nothing of it is lost.
func TestWrappedTextFits(t *testing.T) {
	face, err := newTypeface(goregular.TTF)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("aW.-/ :_\n\tŁжΩ無\u202e🚀")), 0, 200, -1).Draw(t, "text")
		most := float64(rapid.IntRange(5, 120).Draw(t, "millimetres"))
		lines := face.wrap(text, plain, most)
		for _, l := range lines {
			if face.width(l, plain) > most && len([]rune(l)) > 1 {
				t.Errorf("%q is %.1f mm wide, at most %.1f", l, face.width(l, plain), most)
			}
		}
		bare := func(s string) string { return strings.ReplaceAll(s, " ", "") }
		if got, want := bare(strings.Join(lines, "")), bare(face.clean(text)); got != want {
			t.Errorf("%q became %q", want, got)
		}
	})
}
