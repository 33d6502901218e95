package control

import (
	"time"

	"millrace/billing/month"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Month is an accounting month and what it came to. Customers and reasons are only of one month.
type Month struct {
	Month     string            `json:"month"`
	State     string            `json:"state"`
	FreezesAt time.Time         `json:"freezes_at"`
	ClosedAt  *time.Time        `json:"closed_at,omitempty"`
	ClosedBy  string            `json:"closed_by,omitempty"`
	Checksum  string            `json:"checksum,omitempty"`
	Currency  string            `json:"currency"`
	Figures   map[string]Amount `json:"figures"`
	Customers []MonthCustomer   `json:"customers,omitempty"`
	Reasons   []MonthReason     `json:"reasons,omitempty"`
}

// MonthCustomer is a month of one customer.
type MonthCustomer struct {
	OrgID   string            `json:"org_id"`
	OrgName string            `json:"org_name"`
	Figures map[string]Amount `json:"figures"`
}

// MonthReason is one thing that keeps a month from being closed.
type MonthReason struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

func figuresOf(f *month.Figures) map[string]Amount {
	out := make(map[string]Amount, len(f))
	for c, n := range f {
		out[month.Columns[c].Key] = amount(n)
	}
	return out
}

func monthOf(m month.Month, f *month.Figures) Month {
	return Month{Month: m.Name(), State: string(m.State), FreezesAt: m.FreezesAt, ClosedAt: optionalTime(m.ClosedAt), ClosedBy: m.ClosedBy, Currency: month.Currency, Figures: figuresOf(f)}
}

func reportOf(r month.Report) Month {
	out := monthOf(r.Month, &r.Total)
	out.Checksum = r.Checksum
	for i := range r.Rows {
		out.Customers = append(out.Customers, MonthCustomer{OrgID: ids.Format(ids.Org, r.Rows[i].Org), OrgName: r.Rows[i].Name, Figures: figuresOf(&r.Rows[i].Figures)})
	}
	return out
}

func (a *api) listMonths(c *call, _ none) (Page[Month], error) {
	list, err := a.Months.List(c, c.actor)
	return all(list, func(l month.Line) Month { return monthOf(l.Month, &l.Figures) }), err
}

func (c *call) month() (time.Time, error) {
	start, err := month.Parse(c.param("month"))
	if err != nil {
		return start, fault.Wrap(err, fault.NotFound, "There is no such month.")
	}
	return start, nil
}

func (a *api) getMonth(c *call, _ none) (Month, error) {
	start, err := c.month()
	if err != nil {
		return Month{}, err
	}
	r, err := a.Months.Report(c, c.actor, start)
	if err != nil {
		return Month{}, err
	}
	out := reportOf(r)
	reasons, err := a.Months.CheckClose(c, c.actor, start)
	for _, x := range reasons {
		out.Reasons = append(out.Reasons, MonthReason{Code: x.Code, Text: x.Text})
	}
	return out, err
}

// Drafted is what looking a month through again came to.
type Drafted struct {
	Invoices int `json:"invoices"`
}

// draftMonth makes or draws anew the invoices of a frozen month that are not ready or final.
func (a *api) draftMonth(c *call) (Drafted, error) {
	start, err := c.month()
	if err != nil {
		return Drafted{}, err
	}
	n, err := a.Invoices.Draft(c, c.actor, start)
	return Drafted{Invoices: n}, err
}

// MonthClose closes a month: its name again, typed by who means it.
type MonthClose struct {
	Confirm string `json:"confirm"`
}

func (a *api) closeMonth(c *call, in MonthClose) (Month, error) {
	start, err := c.month()
	if err != nil {
		return Month{}, err
	}
	r, err := a.Months.Close(c, c.actor, start, in.Confirm)
	return reportOf(r), err
}
