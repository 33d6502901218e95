package statement

import (
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/ui"
)

// Usage is what a line of usage is made of.
type Usage struct {
	Day      time.Time
	Requests int64
	Charged  money.Nano // the line
	List     []Booked   // a page, newest first
	Next     string     // cursor of older ones; "" = none
}

// Booked is a request in a line.
type Booked struct {
	ID      ids.ID
	At      time.Time
	Model   string
	Tokens  int64
	Version ids.ID // of the price
	Txn     ids.ID
	Charged money.Nano
}

// Grid lists the requests. request gives where one leads to; nil = nowhere.
func (u Usage) Grid(request func(ids.ID) string) ui.Grid {
	g := ui.Grid{Caption: "Requests booked on " + u.Day.Format("2 January 2006"), Cards: true,
		Columns: []ui.Column{{Name: "Request", Mono: true, Wrap: true}, {Name: "Started"}, {Name: "Model"}, {Name: "Tokens", Num: true}, {Name: "Price version", Mono: true, Less: true, Wrap: true},
			{Name: "Transaction", Mono: true, Less: true, Wrap: true}, {Name: "Charged", Num: true}},
		Empty: ui.Blank{Icon: "receipt", Title: "Nothing was charged", Text: "No request was booked on this day."}}
	for _, b := range u.List {
		id := ids.Format(ids.Request, b.ID)
		name := ui.T(id)
		if request != nil {
			name = ui.L(request(b.ID), id)
		}
		g.Rows = append(g.Rows, ui.Row{name, ui.At(b.At), ui.T(b.Model), ui.Tok(b.Tokens), ui.T(ids.Format(ids.Price, b.Version)), ui.T(ids.Format(ids.Txn, b.Txn)), ui.USD(b.Charged)})
	}
	return g
}
