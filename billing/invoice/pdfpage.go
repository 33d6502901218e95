package invoice

import (
	"fmt"

	"github.com/johnfercher/maroto/v2/pkg/components/col"
	"github.com/johnfercher/maroto/v2/pkg/components/line"
	leaf "github.com/johnfercher/maroto/v2/pkg/components/page"
	"github.com/johnfercher/maroto/v2/pkg/components/row"
	words "github.com/johnfercher/maroto/v2/pkg/components/text"
	"github.com/johnfercher/maroto/v2/pkg/consts/align"
	"github.com/johnfercher/maroto/v2/pkg/consts/fontstyle"
	"github.com/johnfercher/maroto/v2/pkg/core"
	"github.com/johnfercher/maroto/v2/pkg/props"
)

// The page, in millimetres: A4. A column of the grid is a millimetre.
const (
	pageWidth, pageHeight = 210, 297
	marginX               = 18
	marginTop             = 16
	marginBottom          = 12
	across                = pageWidth - 2*marginX
	footer                = 11.0
	body                  = pageHeight - marginTop - marginBottom - footer - 1 // less than there is: rows never break by themselves
)

// Sizes of letters, in points, and the height of a line of each.
const (
	small, smallLine = 8.0, 4.0
	plain, plainLine = 9.0, 4.6
	title, titleLine = 20.0, 10.0
)

var (
	ink    = &props.Color{Red: 24, Green: 24, Blue: 27}
	muted  = &props.Color{Red: 113, Green: 113, Blue: 122}
	rule   = &props.Color{Red: 212, Green: 212, Blue: 216}
	tinted = &props.Color{Red: 244, Green: 244, Blue: 245}
)

// pages collects rows and begins a new page where they would not fit.
type pages struct {
	head func() []piece // what further pages begin with
	tail func(number, of int) core.Row
	list [][]piece
	used float64 // of the last page
}

// piece is a row and its height.
type piece struct {
	core.Row
	height float64
}

func (p *pages) add(keep float64, pieces ...piece) {
	height := keep
	for _, one := range pieces {
		height += one.height
	}
	if len(p.list) == 0 {
		p.list = append(p.list, nil)
	} else if p.used+height > body {
		p.list, p.used = append(p.list, nil), 0
		if p.head != nil {
			p.put(p.head()...)
		}
	}
	p.put(pieces...)
}

func (p *pages) put(pieces ...piece) {
	last := len(p.list) - 1
	for _, one := range pieces {
		p.list[last] = append(p.list[last], one)
		p.used += one.height
	}
}

// render gives the pages with their feet.
func (p *pages) render() []core.Page {
	out := make([]core.Page, len(p.list))
	for i, pieces := range p.list {
		rows, used := make([]core.Row, 0, len(pieces)+2), 0.0
		for _, one := range pieces {
			rows, used = append(rows, one.Row), used+one.height
		}
		out[i] = leaf.New()
		out[i].Add(append(rows, row.New(body-used), p.tail(i+1, len(p.list)))...)
	}
	return out
}

// style is how text looks.
type style struct {
	size  float64
	bold  bool
	right bool
	color *props.Color
}

func (s style) at(top float64) props.Text {
	t := props.Text{Family: fontFamily, Size: s.size, Top: top, Color: ink, Style: fontstyle.Normal, Align: align.Left}
	if s.bold {
		t.Style = fontstyle.Bold
	}
	if s.right {
		t.Align = align.Right
	}
	if s.color != nil {
		t.Color = s.color
	}
	return t
}

// block is a column of lines below each other.
func block(width int, lines []string, s style, lineHeight float64) core.Col {
	c := col.New(width)
	for i, l := range lines {
		c.Add(words.New(l, s.at(float64(i)*lineHeight)))
	}
	return c
}

// cells is a row of single lines.
func cells(height float64, columns ...core.Col) piece {
	return piece{row.New(height).Add(columns...), height}
}

func cell(width int, s string, st style) core.Col {
	return col.New(width).Add(words.New(s, st.at(0.6)))
}

func gap(height float64) piece { return piece{row.New(height).Add(col.New(across)), height} }

func ruled(from, width int) piece {
	columns := []core.Col{}
	if from > 0 {
		columns = append(columns, col.New(from))
	}
	const height = 1.6
	return piece{row.New(height).Add(append(columns, col.New(width).Add(line.New(props.Line{Color: rule, Thickness: 0.25, SizePercent: 100, OffsetPercent: 50})))...), height}
}

func pageOf(number, of int) string { return fmt.Sprintf("Page %d of %d", number, of) }
