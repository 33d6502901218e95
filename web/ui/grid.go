package ui

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a-h/templ"

	"millrace/internal/money"
)

// Grid is a table with a caption: the page draws it, the CSV export writes it, both from the same cells.
type Grid struct {
	Caption string // says what the rows are; read by screen readers
	Columns []Column
	Rows    []Row
	Foot    []Cell // totals, as many as columns; nil for none
	Cards   bool   // on a phone every row becomes a card; otherwise the table scrolls sideways
	Empty   Blank  // shown instead of a table without rows
}

// Column heads one column.
type Column struct {
	Name string
	Num  bool   // figures: right-aligned, tabular
	Hide bool   // the name is for screen readers and CSV only
	Sort string // link that sorts by this column; empty for none
	Mono bool
	Wrap bool // long text may break anywhere
	Less bool // left out of a phone's cards; the row's own page has it
}

// Row is one line. The first cell names it.
type Row []Cell

// Cell is one value: how it reads, what it is exactly, and optionally where it leads.
type Cell struct {
	Text  string          // what the page shows
	Title string          // the exact figure, on hover; may be empty
	Sub   string          // a quiet second line; may be empty
	Href  string          // makes the text a link; may be empty
	Node  templ.Component // drawn instead of Text, for tags, meters and buttons; may be nil
	CSV   string          // what the export writes
	plain bool            // CSV is a number or time of our own making: no spreadsheet would run it
	time  time.Time
}

// T is a text cell.
func T(text string) Cell { return Cell{Text: text, CSV: text} }

// L is a text cell that leads somewhere.
func L(href, text string) Cell { return Cell{Text: text, Href: href, CSV: text} }

// WithSub adds a quiet second line, which the CSV leaves out.
func (c Cell) WithSub(sub string) Cell { c.Sub = sub; return c }

// C is a count with thousands separators.
func C(n int64) Cell {
	return Cell{Text: FormatCount(n), CSV: strconv.FormatInt(n, 10), plain: true}
}

// Tok is a token count in short form; the exact count is the title and the CSV.
func Tok(n int64) Cell {
	return Cell{Text: FormatTokens(n), Title: FormatCount(n) + " tokens", CSV: strconv.FormatInt(n, 10), plain: true}
}

// USD is an amount of money; the CSV has full precision in dollars.
func USD(n money.Nano) Cell {
	return Cell{Node: Money(n), Text: FormatMoney(n), CSV: n.String(), plain: true}
}

// PerM is a unit price in dollars per one million tokens.
func PerM(p money.Pico) Cell {
	return Cell{Text: FormatPerMillion(p), CSV: p.PerMillion(), plain: true}
}

// At is a moment; the CSV has UTC in RFC 3339. The zero time is "–".
func At(t time.Time) Cell {
	if t.IsZero() {
		return T("–")
	}
	return Cell{Node: When(t), CSV: t.UTC().Format(time.RFC3339), plain: true, time: t}
}

// Ago is a moment shown as an age.
func Ago(t time.Time) Cell {
	c := At(t)
	if t.IsZero() {
		return T("never")
	}
	c.Node = Age(t)
	return c
}

// N is a drawn cell; csv is what the export writes for it.
func N(node templ.Component, csv string) Cell { return Cell{Node: node, CSV: csv} }

// label is the column's name as a phone's card shows it.
func (g Grid) label(i int) string {
	if i < len(g.Columns) && !g.Columns[i].Hide {
		return g.Columns[i].Name
	}
	return ""
}

func (c Column) class() string {
	switch {
	case c.Num:
		return "num"
	case c.Mono && c.Wrap:
		return "mono wrap"
	case c.Mono:
		return "mono"
	case c.Wrap:
		return "wrap"
	}
	return ""
}

// blank reports a cell with nothing to show: a phone's card leaves it out.
func (c Cell) blank() bool { return c.Node == nil && c.Text == "" }

// denseColumns is the number of columns from which a table is set tighter.
const denseColumns = 7

// scrollStop makes a table that scrolls sideways reachable by keyboard; cards never scroll.
func scrollStop(g Grid) string {
	if g.Cards {
		return "-1"
	}
	return "0"
}

// keepRunes is the longest text that never breaks inside a cell: names stay in one piece.
const keepRunes = 28

func (c Cell) class(col Column) string {
	class := col.class()
	if c.Node == nil && !col.Wrap && utf8.RuneCountInString(c.Text) <= keepRunes {
		class = strings.TrimSpace(class + " nowrap")
	}
	if col.Less {
		class = strings.TrimSpace(class + " less")
	}
	if c.blank() {
		class = strings.TrimSpace(class + " blank")
	}
	return class
}
