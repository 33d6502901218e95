package ui

import "time"

// AuditEntry is one line of an audit log.
type AuditEntry struct {
	At        time.Time
	Actor     string // e-mail, key name or "system"
	ActingAs  string // set when an operator acted in a customer's name
	Org       string // on the operator's log
	Action    string // a stable name: "key.create"
	Target    string
	Change    string // "cap $50.00 → $80.00"; may be empty
	IP        string
	RequestID string
}

// AuditGrid is the log as a table; withOrg adds the customer's column.
func AuditGrid(entries []AuditEntry, withOrg bool) Grid {
	g := Grid{
		Caption: "Audit log", Cards: true,
		Columns: []Column{{Name: "When"}, {Name: "Who"}, {Name: "What", Mono: true}, {Name: "On"}, {Name: "Change", Wrap: true}, {Name: "From"}},
		Empty:   Blank{Icon: "scroll-text", Title: "Nothing has happened yet", Text: "Every change to keys, caps, credit and members is written here in the same moment it is made, and stays."},
	}
	if withOrg {
		g.Columns = append(g.Columns, Column{Name: "Customer"})
	}
	for _, e := range entries {
		who := T(e.Actor)
		if e.ActingAs != "" {
			who = who.WithSub("acting as " + e.ActingAs)
		}
		row := Row{At(e.At), who, T(e.Action), T(e.Target), T(e.Change), T(e.IP).WithSub(e.RequestID)}
		if withOrg {
			row = append(row, T(e.Org))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}
