package invoice

import (
	"strings"
	"unicode"

	"github.com/johnfercher/maroto/v2/pkg/consts/fontstyle"
	"github.com/johnfercher/maroto/v2/pkg/core/entity"
	"github.com/johnfercher/maroto/v2/pkg/repository"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// fontFamily is the documents' font: the Go fonts know Latin, Greek and Cyrillic letters.
const fontFamily = "go"

func fonts() ([]*entity.CustomFont, error) {
	return repository.New().AddUTF8FontFromBytes(fontFamily, fontstyle.Normal, goregular.TTF).AddUTF8FontFromBytes(fontFamily, fontstyle.Bold, gobold.TTF).Load()
}

// typeface measures text, so that pages can be laid out before they are drawn. It is for one document at a time.
type typeface struct {
	font *sfnt.Font
	buf  sfnt.Buffer
}

// em is what widths are measured in: a thousand to the font's size.
const em = 1000

// mmPerPoint turns a font's size into millimetres.
const mmPerPoint = 25.4 / 72

func newTypeface(ttf []byte) (*typeface, error) {
	f, err := sfnt.Parse(ttf)
	return &typeface{font: f}, err
}

// advance is a letter's width; ok=false: the font has no such letter.
func (t *typeface) advance(r rune) (width int, ok bool) {
	index, err := t.font.GlyphIndex(&t.buf, r)
	if err != nil || index == 0 {
		return 0, false
	}
	w, err := t.font.GlyphAdvance(&t.buf, index, fixed.I(em), font.HintingNone)
	return w.Ceil(), err == nil
}

// clean replaces what cannot be drawn.
func (t *typeface) clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if _, ok := t.advance(r); !ok || unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// width is how wide text is at a size in points, in millimetres.
func (t *typeface) width(s string, points float64) float64 {
	sum := 0
	for _, r := range s {
		w, _ := t.advance(r)
		sum += w
	}
	return float64(sum) / em * points * mmPerPoint
}

// wrap breaks clean text into lines of at most so many millimetres: at spaces, and inside of words that are longer than a line.
func (t *typeface) wrap(s string, points, most float64) []string {
	var lines []string
	for _, paragraph := range strings.Split(s, "\n") {
		line := ""
		for _, word := range strings.Fields(t.clean(paragraph)) {
			if line != "" && t.width(line+" "+word, points) <= most {
				line += " " + word
				continue
			}
			if line != "" {
				lines = append(lines, line)
			}
			for t.width(word, points) > most {
				head := t.fit(word, points, most)
				lines = append(lines, head)
				word = word[len(head):]
			}
			line = word
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// fit is the longest beginning of a word that fits: a letter at least, and to its last mark where names are joined if there is one.
func (t *typeface) fit(word string, points, most float64) string {
	end, mark := 0, 0
	for i, r := range word {
		next := i + len(string(r))
		if i > 0 && t.width(word[:next], points) > most {
			break
		}
		if end = next; strings.ContainsRune("/-_.:@", r) {
			mark = end
		}
	}
	if mark > end/2 {
		return word[:mark]
	}
	return word[:end]
}
