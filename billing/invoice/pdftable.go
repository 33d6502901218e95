package invoice

import (
	"strings"
	"time"

	"github.com/johnfercher/maroto/v2/pkg/components/col"
	"github.com/johnfercher/maroto/v2/pkg/props"

	"millrace/internal/ids"
)

// Widths of the table's columns.
const (
	wideText, wideQuantity, wideUnit, wideAmount = 76, 32, 38, across - 146
	rowHeight                                    = 5.4
)

// Names of columns.
const quantityHead, unitHead = "Quantity", "Unit price"

// classes is how a document names the classes of tokens.
var classes = map[string]string{"input": "Input tokens", "cached": "Cached input tokens", "cache_write": "Cache write tokens", "output": "Output tokens",
	"reasoning": "Reasoning tokens", "image": "Image tokens", "audio": "Audio tokens", "request": "Requests"}

// heads names the columns; of a credit note there are two.
func heads(quantity, unit string) piece {
	st := style{size: small, color: muted}
	right := style{size: small, color: muted, right: true}
	p := cells(rowHeight+0.6, cell(wideText, "  Description", st), cell(wideQuantity, quantity, right), cell(wideUnit, unit, right), cell(wideAmount, "Amount, USD  ", right))
	p.Row.WithStyle(&props.Cell{BackgroundColor: tinted})
	return p
}

// sameGroup reports whether a line belongs below the same heading.
func sameGroup(a, b *Line) bool {
	return a.Kind == b.Kind && a.Month.Equal(b.Month) && a.Model == b.Model && a.Version == b.Version && a.Service == b.Service
}

// table writes the lines, below a heading for each model, price version and tier.
func (p *paper) table() {
	p.add(3*rowHeight, heads(quantityHead, unitHead), gap(1))
	p.head = func() []piece {
		pieces := []piece{heads(quantityHead, unitHead), gap(1)}
		if p.within != nil {
			pieces = append(pieces, p.heading(p.within)...)
		}
		return pieces
	}
	month := p.Month
	for n := range p.Lines {
		l := &p.Lines[n]
		if l.Kind != UsageLine && l.Cents == 0 {
			continue // less than a cent
		}
		var before []piece
		if !l.Month.Equal(month) {
			month = l.Month
			before = append(before, gap(2), cells(rowHeight+1, cell(across, "  Usage of "+month.Format("January 2006")+", booked after its invoice", style{size: plain, bold: true})))
		}
		p.within = nil
		switch {
		case l.Kind != UsageLine:
		case n > 0 && sameGroup(l, &p.Lines[n-1]):
			p.within = l
		default:
			before = append(before, p.heading(l)...)
		}
		p.add(0, append(before, p.line(l))...)
	}
}

// heading names a model, however long its name is.
func (p *paper) heading(l *Line) []piece {
	name := l.Name
	if l.Service != "" {
		name += ", tier " + l.Service
	}
	wrapped := p.bold.wrap(name, plain, across-6)
	for i := range wrapped {
		wrapped[i] = "  " + wrapped[i]
	}
	pieces := []piece{gap(1.4), cells(plainLine*float64(len(wrapped))+0.4, block(across, wrapped, style{size: plain, bold: true}, plainLine))}
	if l.Version != ids.Nil {
		id := ids.Format(ids.Price, l.Version)
		pieces = append(pieces, cells(smallLine+0.4, block(across, []string{"  Price version …" + id[len(id)-12:]}, style{size: small, color: muted}, smallLine)))
	}
	return pieces
}

// line writes one line.
func (p *paper) line(l *Line) piece {
	what, quantity, unit := "", "", ""
	switch l.Kind {
	case UsageLine:
		what, quantity, unit = classes[l.Class], thousands(l.Quantity), unitPrice(l)
		if what == "" {
			what = strings.ToUpper(l.Class[:1]) + l.Class[1:] + " tokens"
		}
	case RoundingLine:
		what = "Rounding of requests"
	case OverrunLine:
		what = "Delivered beyond the limit, not charged"
	case PromoLine:
		what = "Paid from promotional credit"
	case PrepaidLine:
		what = "Paid from credit"
	case CentsLine:
		what = "Rounding to cents"
	}
	st, right := style{size: plain}, style{size: plain, right: true}
	if l.Kind != UsageLine {
		st.color, right.color = muted, muted
	}
	return cells(rowHeight, cell(wideText, "  "+what, st), cell(wideQuantity, quantity, right), cell(wideUnit, unit, right), cell(wideAmount, amount(l.Cents)+"  ", right))
}

// sumLine is a line below the table.
type sumLine struct {
	name  string
	cents int64
	bold  bool
}

// totals ends the table.
func (p *paper) totals() {
	var list []sumLine
	if p.Tax != 0 {
		list = append(list, sumLine{"Subtotal", p.Subtotal, false}, sumLine{"Tax", p.Tax, false})
	}
	p.within = nil
	p.sums(append(list, sumLine{"Total, USD", p.Total, true})...)
	p.head = nil // what follows is no table
}

func (p *paper) sums(list ...sumLine) {
	const left, label = 100, 42
	pieces := []piece{ruled(0, across), gap(1.5)}
	for _, l := range list {
		st := style{size: plain, bold: l.bold}
		if l.bold {
			st.size += 3
		}
		right := st
		right.right = true
		pieces = append(pieces, cells(st.size*0.62, col.New(left), cell(label, l.name, st), cell(across-left-label, amount(l.cents)+"  ", right)))
	}
	p.add(0, append(pieces, gap(6))...)
}

// terms says how and until when to pay.
func (p *paper) terms() {
	texts := []string{"Please pay by " + date(p.DueAt) + " and name " + p.Number + "."}
	if p.Total == 0 {
		texts = []string{"Nothing is due."}
	}
	lines := p.lines(p.regular, across-8, append(texts, p.Seller.Terms)...)
	notes := p.regular.wrap("Months are calendar months in UTC; a request counts in the month it started in. Every line is rounded to cents, half to even. "+
		"“Rounding of requests” is what the requests' own rounding to billionths of a dollar makes of the lines' sum.", small, across-8)
	if len(p.Lines) > 0 && !lastMonth(p.Lines).Equal(p.Month) {
		notes = append(notes, p.regular.wrap("Usage that was booked more than 48 hours after the end of its month is on the next invoice, under its own month.", small, across-8)...)
	}
	for _, l := range lines {
		p.add(0, cells(plainLine, block(across, []string{l}, style{size: plain}, plainLine)))
	}
	p.add(0, gap(3))
	for _, l := range notes {
		p.add(0, cells(smallLine, block(across, []string{l}, style{size: small, color: muted}, smallLine)))
	}
}

func lastMonth(lines []Line) time.Time { return lines[len(lines)-1].Month }
