package invoice

import (
	"fmt"
	"strconv"

	"millrace/db/q"
)

// maxTillLines is how many lines an invoice has at the payment provider.
const maxTillLines = 250

const maxTillText = 250 // bytes of a line

// otherUsage stands for the lines that have no room.
const otherUsage = "Other usage, see the statement in the console"

// tillLines are the lines for the payment provider: what is less than a cent is left out, and the tail of usage that has no
// room is one line. Their cents add up to the invoice's.
func tillLines(inv q.Invoice, lines []q.InvoiceLine) (out []TillLine) {
	const room = maxTillLines - 2 // besides the rest and tax
	shown, usages := 0, room
	for _, l := range lines {
		if l.Cents == 0 {
			continue
		}
		if shown++; LineKind(l.Kind) != UsageLine {
			usages--
		}
	}
	rest := TillLine{Key: "other", Text: otherUsage}
	for _, l := range lines {
		usage := LineKind(l.Kind) == UsageLine
		switch {
		case l.Cents == 0:
			continue
		case shown > room && (usage && usages <= 0 || len(out) >= room):
			rest.Cents += l.Cents
			continue
		case usage:
			usages--
		}
		out = append(out, TillLine{Key: "l" + strconv.Itoa(int(l.Position)), Text: clip(lineText(l), maxTillText), Cents: l.Cents})
	}
	if rest.Cents != 0 {
		out = append(out, rest)
	}
	if inv.TaxCents != 0 {
		out = append(out, TillLine{Key: "tax", Text: "Tax", Cents: inv.TaxCents})
	}
	return out
}

// lineText is a line in words.
func lineText(l q.InvoiceLine) string {
	month := l.UsageMonth.Format("January 2006")
	switch LineKind(l.Kind) {
	case RoundingLine:
		return month + ": rounding of requests"
	case OverrunLine:
		return month + ": delivered beyond the limit, not charged"
	case PromoLine:
		return month + ": paid from promotional credit"
	case PrepaidLine:
		return month + ": paid from credit"
	case CentsLine:
		return month + ": rounding to cents"
	}
	what := fmt.Sprintf("%s: %s, %s, %d", month, l.Model, l.Class, l.Quantity)
	if l.ServiceTier != "" {
		what += ", " + l.ServiceTier
	}
	return what
}

// plan compares the lines that a draft has with those that it needs.
type plan struct {
	missing []TillLine
	doubled bool   // a line is there twice: a lost answer was none
	strange string // what somebody else did; "" = nothing
}

func planLines(want, have []TillLine) plan {
	var p plan
	seen := make(map[string]TillLine, len(have))
	for _, l := range have {
		if _, twice := seen[l.Key]; twice && l.Key != "" {
			p.doubled = true
		}
		seen[l.Key] = l
	}
	for _, w := range want {
		h, there := seen[w.Key]
		switch {
		case !there:
			p.missing = append(p.missing, w)
		case h.Cents != w.Cents:
			p.strange = fmt.Sprintf("the line %q has %s there and %s here", w.Text, dollars(h.Cents), dollars(w.Cents))
		}
		delete(seen, w.Key)
	}
	for _, l := range seen {
		p.strange = fmt.Sprintf("somebody added the line %q of %s there", l.Text, dollars(l.Cents))
	}
	return p
}
