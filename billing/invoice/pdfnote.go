package invoice

import (
	"context"
	"fmt"
	"io"
	"slices"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// NotePDF writes a credit note as a document.
func (s *Service) NotePDF(ctx context.Context, by tenants.Actor, org, id, note ids.ID, w io.Writer) error {
	i, err := s.Get(ctx, by, org, id)
	if err != nil {
		return err
	}
	n := slices.IndexFunc(i.Notes, func(n Note) bool { return n.ID == note })
	if n < 0 {
		return fault.New(fault.NotFound, "There is no such credit note.").WithCode("not_found")
	}
	text, err := noteDocument(&i, &i.Notes[n])
	if err != nil {
		return fmt.Errorf("invoice: document of %s: %w", i.Notes[n].Number, err)
	}
	_, err = w.Write(text)
	return err
}

// noteDocument draws a credit note.
func noteDocument(i *Invoice, n *Note) ([]byte, error) {
	p := &paper{Invoice: i, title: "Credit note", number: n.Number, at: n.At}
	p.facts = [][2]string{{"Number", n.Number}, {"Date", date(n.At)}, {"Of invoice", i.Number}, {"Usage", i.Month.Format("January 2006") + " (UTC)"}}
	return p.draw(func() {
		p.add(0, heads("", ""), gap(1))
		right := style{size: plain, right: true}
		for l, text := range p.regular.wrap(n.Reason, plain, across-wideAmount-8) {
			sum := ""
			if l == 0 {
				sum = amount(n.Cents) + "  "
			}
			p.add(0, cells(rowHeight, cell(across-wideAmount, "  "+text, style{size: plain}), cell(wideAmount, sum, right)))
		}
		p.sums(sumLine{"Credited, USD", n.Cents, true})
		for _, text := range n.sentences(i.Number) {
			for _, l := range p.regular.wrap(text, plain, across-8) {
				p.add(0, cells(plainLine, block(across, []string{l}, style{size: plain}, plainLine)))
			}
		}
	})
}

// sentences say where the sum went.
func (n *Note) sentences(invoice string) (list []string) {
	if n.Relieved > 0 {
		list = append(list, fmt.Sprintf("%s USD less are due on %s.", amount(n.Relieved), invoice))
	}
	if back := n.Cents - n.Relieved; back > 0 {
		list = append(list, fmt.Sprintf("%s USD come back %s.", amount(back), map[Back]string{BackAsCredit: "as credit on your account", BackByHand: "by bank transfer",
			BackByStripe: "the way that they were paid"}[n.Back]))
	}
	return list
}
