package invoice

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/johnfercher/maroto/v2"
	"github.com/johnfercher/maroto/v2/pkg/components/col"
	"github.com/johnfercher/maroto/v2/pkg/components/row"
	words "github.com/johnfercher/maroto/v2/pkg/components/text"
	"github.com/johnfercher/maroto/v2/pkg/config"
	"github.com/johnfercher/maroto/v2/pkg/core"
	"github.com/johnfercher/maroto/v2/pkg/props"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/tenants"
)

// PDF writes a final invoice as a document. What it says is what became final, so it is the same whenever it is asked for.
func (s *Service) PDF(ctx context.Context, by tenants.Actor, org, id ids.ID, w io.Writer) error {
	i, err := s.Get(ctx, by, org, id)
	if err != nil {
		return err
	}
	if !i.State.Final() {
		return fault.New(fault.Conflict, "This invoice is not final yet.").WithCode("invoice_not_final")
	}
	text, err := document(&i)
	if err != nil {
		return fmt.Errorf("invoice: document of %s: %w", i.Number, err)
	}
	_, err = w.Write(text)
	return err
}

// paper lays a document out: an invoice, or a credit note of one.
type paper struct {
	*Invoice
	title, number string
	at            time.Time
	facts         [][2]string
	regular, bold *typeface
	within        *Line // whose heading a new page repeats; nil = none
	pages
}

// document draws an invoice.
func document(i *Invoice) ([]byte, error) {
	p := &paper{Invoice: i, title: "Invoice", number: i.Number, at: i.FinalizedAt}
	p.facts = [][2]string{{"Number", i.Number}, {"Date", date(i.FinalizedAt)}, {"Due", date(i.DueAt)}, {"Usage", i.Month.Format("January 2006") + " (UTC)"}}
	return p.draw(func() {
		p.table()
		p.totals()
		p.terms()
	})
}

// draw gives the document's bytes; body writes what is between its top and its feet.
func (p *paper) draw(body func()) ([]byte, error) {
	var err error
	if p.regular, err = newTypeface(goregular.TTF); err != nil {
		return nil, err
	}
	if p.bold, err = newTypeface(gobold.TTF); err != nil {
		return nil, err
	}
	custom, err := fonts()
	if err != nil {
		return nil, err
	}
	p.tail = p.foot
	p.top()
	body()
	m := maroto.New(config.NewBuilder().WithMaxGridSize(across).WithLeftMargin(marginX).WithRightMargin(marginX).WithTopMargin(marginTop).WithBottomMargin(marginBottom).
		WithCustomFonts(custom).WithDefaultFont(&props.Font{Family: fontFamily, Size: plain}).WithCompression(true).WithCreationDate(p.at).
		WithTitle(p.title+" "+p.number, true).WithAuthor(p.Seller.Name, true).WithCreator("Millrace", true).Build())
	m.AddPages(p.render()...)
	doc, err := m.Generate()
	if err != nil {
		return nil, err
	}
	// The library writes the moment of drawing as the last change; of the same length, so that what follows stays where it is.
	return modified.ReplaceAll(doc.GetBytes(), []byte("/ModDate (D:"+p.at.UTC().Format("20060102150405")+")")), nil
}

var modified = regexp.MustCompile(`/ModDate \(D:\d{14}\)`)

// top is what the first page begins with: who sends it, what it is, to whom it is.
func (p *paper) top() {
	const left, right = 104, across - 104
	name := p.bold.wrap(p.Seller.Name, title*0.8, left-4)
	if len(name) > 2 {
		name = name[:2]
	}
	p.add(0, cells(max(titleLine, float64(len(name))*7)+6, block(left, name, style{size: title * 0.8, bold: true}, 7), block(right, []string{p.title}, style{size: title, bold: true, right: true}, titleLine)))
	from := p.lines(p.regular, left-8, p.Seller.Address, p.Seller.TaxID, p.Seller.Email)
	labels, values := []string{}, []string{}
	for _, f := range p.facts {
		labels, values = append(labels, f[0]), append(values, p.regular.clean(f[1]))
	}
	if p.BillTo.PurchaseOrder != "" {
		labels, values = append(labels, "Purchase order"), append(values, p.regular.wrap(p.BillTo.PurchaseOrder, plain, 42)...)
	}
	height := plainLine * float64(max(len(from), len(values)))
	p.add(0, cells(height+7, block(left, from, style{size: plain, color: muted}, plainLine), block(26, labels, style{size: plain, color: muted}, plainLine),
		block(right-26, values, style{size: plain, right: true}, plainLine)))
	to := p.lines(p.regular, left-8, p.BillTo.Address, p.BillTo.Country, p.BillTo.TaxID, p.BillTo.Email)
	whom := p.bold.wrap(p.BillTo.LegalName, plain+1, left-8)
	p.add(0, cells(smallLine+1, cell(across, "Bill to", style{size: small, color: muted})),
		cells(5*float64(len(whom))+0.5, block(across, whom, style{size: plain + 1, bold: true}, 5)),
		cells(plainLine*float64(len(to))+8, block(across, to, style{size: plain}, plainLine)))
}

// maxParty is how many lines a party has: a block of more than a page cannot be drawn.
const maxParty = 30

// lines wraps texts, and leaves out those that say nothing.
func (p *paper) lines(t *typeface, width float64, texts ...string) (all []string) {
	for _, s := range texts {
		all = append(all, t.wrap(s, plain, width)...)
	}
	if len(all) > maxParty {
		all = append(all[:maxParty-1], "…")
	}
	return all
}

// foot is what every page ends with.
func (p *paper) foot(number, of int) core.Row {
	legal := p.Seller.Name
	if p.Seller.TaxID != "" {
		legal += " · " + p.Seller.TaxID
	}
	about := p.regular.wrap(legal, small, 128)
	if len(about) > 1 {
		about[0] += " …"
	}
	return row.New(footer).Add(col.New(130).Add(words.New(first(about), style{size: small, color: muted}.at(5))),
		col.New(across-130).Add(words.New(p.number+"   "+pageOf(number, of), style{size: small, color: muted, right: true}.at(5))))
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func date(t time.Time) string { return t.UTC().Format("2 January 2006") }

// amount writes cents as people read them: 1,234.56.
func amount(cents int64) string {
	sign := ""
	if cents < 0 {
		sign, cents = "−", -cents
	}
	return fmt.Sprintf("%s%s.%02d", sign, thousands(cents/100), cents%100)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, r := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// unitPrice writes the price of a line's unit: a million tokens, or a request.
func unitPrice(l *Line) string {
	switch {
	case l.Unit == nil:
		return "varied"
	case l.Class == usage.Requests.String():
		return exactly(l.Unit.String()) + " a request"
	}
	return exactly(l.Unit.PerMillion()) + " / 1M"
}

// exactly gives an exact amount two decimals at least.
func exactly(exact string) string {
	_, decimals, _ := strings.Cut(exact, ".")
	switch len(decimals) {
	case 0:
		exact += ".00"
	case 1:
		exact += "0"
	}
	return "$" + exact
}
