// Package bill draws an invoice: its lines, what became of it, and the running month as one that is not made yet. Customers and
// operators see the same one.
//
// It owns how an invoice reads to people. What it says is billing/invoice's: nothing is added up here that is not there.
package bill

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/billing/invoice"
	"millrace/internal/download"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// Bill is an invoice with how its money is asked for.
type Bill struct {
	invoice.Invoice
	Collection invoice.Collection
	Steps      []invoice.DunningStep // what was done because it was not paid

	Path string // of its page: documents and forms lie below it
	Acts bool   // the page leads to what operators do about payments
}

// NotePath is where a credit note's document is.
func (b *Bill) NotePath(note ids.ID) string {
	return b.Path + "/credit-notes/" + ids.Format(ids.Note, note)
}

// SendPath is where an operator says that he sends a credit note by hand.
func (b *Bill) SendPath(note ids.ID) string { return b.NotePath(note) + "/sent-by-hand" }

// PaymentPath is where a payment that never came is taken back.
func (b *Bill) PaymentPath(payment ids.ID) string {
	return b.Path + "/payments/" + ids.Format(PaymentPrefix, payment) + "/reversal"
}

// FindNote is one of its credit notes, by its formatted id.
func (b *Bill) FindNote(name string) (invoice.Note, error) {
	for _, n := range b.Notes {
		if ids.Format(ids.Note, n.ID) == name {
			return n, nil
		}
	}
	return invoice.Note{}, fault.New(fault.NotFound, "There is no such credit note.").WithCode("not_found")
}

const (
	PaymentPrefix = "pay"  // begins ids of payments
	ByHand        = "hand" // the method of a payment that an operator recorded
)

// File writes a document.
type File func(ctx context.Context, w io.Writer) error

// Cents is an amount of cents for the functions that show money.
func Cents(n int64) money.Nano { return money.Nano(n) * invoice.NanoPerCent }

// Dollars shows an amount of cents as invoices do: always two decimals.
func Dollars(n int64) string { return ui.ExactMoney(Cents(n)) }

// Cell is an amount of cents in a table; the CSV has dollars.
func Cell(n int64) ui.Cell {
	c := ui.USD(Cents(n))
	c.Node, c.Text = Amount(n), Dollars(n)
	return c
}

// Name is how an invoice is called: its number, or the month while it has none.
func Name(i *invoice.Invoice) string {
	if i.Number == "" {
		return "Draft of " + Month(i.Month)
	}
	return "Invoice " + i.Number
}

// Month names a usage month.
func Month(at time.Time) string { return at.UTC().Format("January 2006") }

// State is an invoice's state: a word, a shape and a colour.
func State(i *invoice.Invoice, now time.Time) ui.Cell {
	word, tone := string(i.State), ui.Quiet
	switch {
	case i.Overdue(now):
		word, tone = "overdue", ui.Bad
	case i.State == invoice.Open:
		tone = ui.Warn
	case i.State == invoice.Paid:
		tone = ui.Good
	case i.State == invoice.Draft:
		word, tone = "needs attention", ui.Bad
	case i.State == invoice.Uncollectible:
		word = "given up"
	}
	return ui.N(ui.Tag(tone, word), word)
}

// className says a line's class in words.
func className(name string) string {
	c, ok := usage.ClassOf(name)
	switch {
	case !ok:
		return name
	case c == usage.Requests:
		return "requests"
	}
	text := ui.ClassName(c)
	return strings.ToLower(text[:1]) + text[1:]
}

func what(l *invoice.Line) string {
	switch l.Kind {
	case invoice.RoundingLine:
		return "Rounding of single requests"
	case invoice.OverrunLine:
		return "Delivered beyond the limit, not charged"
	case invoice.PromoLine:
		return "Paid from promotional credit"
	case invoice.PrepaidLine:
		return "Paid from credit"
	case invoice.CentsLine:
		return "Rounding to cents"
	}
	return l.Name + ", " + className(l.Class)
}

// note is what else there is to know of a line.
func note(i *invoice.Invoice, l *invoice.Line) (out string) {
	if l.Service != "" {
		out = l.Service + " tier"
	}
	if !l.Month.Equal(i.Month) && !l.Month.IsZero() {
		if out != "" {
			out += ", "
		}
		out += "used in " + Month(l.Month)
	}
	return out
}

// unit is the price of a million tokens, or of a request.
func unit(l *invoice.Line) ui.Cell {
	switch {
	case l.Kind != invoice.UsageLine:
		return ui.T("")
	case l.Unit == nil:
		return ui.T("varies")
	case l.Class == usage.Requests.String():
		return ui.T(ui.ExactPico(*l.Unit) + " each")
	}
	return ui.PerM(*l.Unit)
}

// Lines are an invoice's lines; they add up to its foot.
func Lines(i *invoice.Invoice) ui.Grid {
	g := ui.Grid{Caption: "Lines", Cards: true,
		Columns: []ui.Column{{Name: "What", Wrap: true}, {Name: "Quantity", Num: true}, {Name: "Per 1M", Num: true}, {Name: "Price version", Mono: true, Less: true}, {Name: "Exact", Num: true, Less: true}, {Name: "Amount", Num: true}},
		Empty:   ui.Blank{Icon: "receipt", Title: "Nothing used so far", Text: "Usage of the running month appears here, by model and token class, as it is booked."}}
	for n := range i.Lines {
		l := &i.Lines[n]
		quantity, version := ui.T(""), ui.T("")
		if l.Kind == invoice.UsageLine {
			quantity = ui.Tok(l.Quantity)
			if l.Class == usage.Requests.String() {
				quantity = ui.C(l.Quantity)
			}
			version = ui.T(shortVersion(l.Version))
			version.CSV = ids.Format(ids.Price, l.Version)
		}
		exact := ui.T(ui.ExactMoney(l.Amount))
		exact.CSV = l.Amount.String()
		g.Rows = append(g.Rows, ui.Row{ui.T(what(l)).WithSub(note(i, l)), quantity, unit(l), version, exact, Cell(l.Cents)})
	}
	if len(g.Rows) > 0 {
		g.Foot = ui.Row{ui.T("Subtotal"), ui.T(""), ui.T(""), ui.T(""), ui.T(""), Cell(i.Subtotal)}
	}
	return g
}

// shortVersion is enough of a price version's id to tell two apart.
func shortVersion(id ids.ID) string {
	const digits = 6
	text := ids.Format(ids.Price, id)
	return "…" + text[len(text)-digits:]
}

// Payments are what arrived, and what was thought to have arrived.
func Payments(b *Bill) ui.Grid {
	g := ui.Grid{Caption: "Payments", Cards: true, Columns: []ui.Column{{Name: "Received"}, {Name: "How"}, {Name: "Reference", Wrap: true}, {Name: "Amount", Num: true}}}
	if b.Acts {
		g.Columns = append(g.Columns, ui.Column{Name: "What to do", Hide: true})
	}
	for _, p := range b.Payments {
		how, reference, act := ui.T("by card"), ui.T(p.Reference), ui.T("")
		if p.Method == ByHand {
			how, act = ui.T("by transfer"), ui.L(b.PaymentPath(p.ID), "Take back")
		}
		amount := Cell(p.Cents)
		if p.Excess > 0 {
			amount = amount.WithSub(Dollars(p.Excess) + " became credit")
		}
		if !p.ReversedAt.IsZero() {
			how, act = how.WithSub("never came, taken back on "+p.ReversedAt.UTC().Format("2 Jan 2006")), ui.T("")
			if b.Acts {
				reference = reference.WithSub(p.ReversedWhy)
			}
		}
		row := ui.Row{ui.At(p.ReceivedAt), how, reference, amount}
		if b.Acts {
			row = append(row, act)
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// Notes are what was taken off.
func Notes(b *Bill) ui.Grid {
	g := ui.Grid{Caption: "Credit notes", Cards: true, Columns: []ui.Column{{Name: "Number"}, {Name: "When"}, {Name: "Why", Wrap: true}, {Name: "What was paid of it", Wrap: true}, {Name: "Amount", Num: true}, {Name: "Document", Hide: true}}}
	ways := map[invoice.Back]string{invoice.BackAsCredit: "became credit", invoice.BackByHand: "is sent back", invoice.BackByStripe: "goes back to the card", "": "nothing"}
	if b.Acts {
		g.Columns = append(g.Columns, ui.Column{Name: "What to do", Hide: true})
	}
	for _, n := range b.Notes {
		way, act := ui.T(ways[n.Back]), ui.T("")
		switch {
		case !n.SentAt.IsZero():
			way = ui.T("sent by hand on " + n.SentAt.UTC().Format("2 Jan 2006")).WithSub(n.SentWhy)
		case n.Back == invoice.BackByStripe && b.Collection.Problem != "":
			act = ui.L(b.SendPath(n.ID), "Send by hand")
		}
		row := ui.Row{ui.T(n.Number), ui.At(n.At), ui.T(n.Reason), way, Cell(-n.Cents), ui.L(b.NotePath(n.ID), "PDF")}
		if b.Acts {
			row = append(row, act)
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// Steps are what was done because it was not paid.
func Steps(b *Bill) ui.Grid {
	g := ui.Grid{Caption: "Reminders", Cards: true, Columns: []ui.Column{{Name: "When"}, {Name: "What", Wrap: true}, {Name: "After", Num: true}, {Name: "Undone"}}}
	for _, s := range b.Steps {
		undone := ui.T("in force")
		if !s.Undone.IsZero() {
			undone = ui.At(s.Undone)
		}
		if s.What == "reminded" {
			undone = ui.T("–")
		}
		g.Rows = append(g.Rows, ui.Row{ui.At(s.At), ui.T(s.What), ui.T(days(s.Day)), undone})
	}
	return g
}

func days(n int) string {
	if n == 1 {
		return "1 day"
	}
	return strconv.Itoa(n) + " days"
}

// dueText says when the money should be there.
func dueText(i *invoice.Invoice, now time.Time) string {
	switch {
	case i.State == invoice.Paid:
		return "paid on " + i.SettledAt.UTC().Format("2 Jan 2006")
	case i.State == invoice.Void:
		return "taken back by a credit note"
	case i.State == invoice.Uncollectible:
		return "given up"
	case i.Overdue(now):
		return "was due on " + i.DueAt.UTC().Format("2 Jan 2006")
	case i.State == invoice.Open:
		return "due on " + i.DueAt.UTC().Format("2 Jan 2006")
	}
	return "not final yet"
}

// SendPDF answers with the document.
func SendPDF(c echo.Context, name string, write File) error {
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return download.Send(c.Response(), download.Answer{Name: name + ".pdf", MediaType: "application/pdf", Write: func(w io.Writer) (map[string]string, error) {
		return nil, write(c.Request().Context(), w)
	}})
}

func usedText(i *invoice.Invoice) string {
	if i.Promo > 0 {
		return ui.FormatMoney(i.Promo) + " of it promotional"
	}
	return "credit is used before anything is invoiced"
}

func taxText(i *invoice.Invoice) string {
	if i.Tax == 0 {
		return ""
	}
	return "Tax: " + Dollars(i.Tax) + ", so the total is " + Dollars(i.Total) + "."
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}
