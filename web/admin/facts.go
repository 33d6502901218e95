package admin

import (
	"time"

	"millrace/billing/margin"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// Overview is the operator's morning page.
type Overview struct {
	Customers int64      // all
	Active    int64      // with a request in the last 24 hours
	Month     money.Nano // usage settled in the running UTC month
	LastMonth money.Nano
	Margin    margin.Figures // last 24 hours, as far as accrued
	Requests  int64          // last 24 hours
	Errors    int64          // of them
	Usage     usage.Vector
	Hours     []HourPoint   // last 24 hours, oldest first; hours without requests included
	FirstTok  ui.Quantiles  // time to first token, last 24 hours
	Units     int64         // known
	Serving   int64         // of them serving
	Simulated int64         // of them simulated
	Hosts     int64         // known
	Connected int64         // of them connected
	Reconcile Reconciled    // the last run
	Overrun   money.Nano    // what was delivered above allotments in the last 30 days, the operator's cost
	Overruns  int64         // such requests
	Aside     int64         // events in quarantine
	RaterLag  time.Duration // age of the oldest event not rated yet
	NoMail    bool          // no mail server is set: sign-in links wait in the outbox
}

// HourPoint is one hour of traffic.
type HourPoint struct {
	Start    time.Time
	Requests int64
	Tokens   int64
}

// Reconciled is the outcome of a reconcile run.
type Reconciled struct {
	At         time.Time // zero = never run
	Watermark  time.Time // everything older was compared
	Difference money.Nano
	Tokens     int64 // unexplained difference in tokens

	Unexplained bool // there is a difference of any kind, also one that is neither money nor tokens
}

// OK reports that nothing is unexplained.
func (r Reconciled) OK() bool { return !r.Unexplained && r.Difference == 0 && r.Tokens == 0 }

// Customer is an organization in the list.
type Customer struct {
	ID          ids.ID
	Name        string
	Balance     money.Nano
	Month       money.Nano  // settled in the running UTC month
	Cost        *money.Nano // of serving it, as far as it is accrued; nil = not known
	Requests    int64       // of the month
	LastRequest time.Time   // zero = never
	Created     time.Time
}

// CustomerList is a page of customers.
type CustomerList struct {
	Rows []Customer
	Next string
}

// CustomerDetail is one customer.
type CustomerDetail struct {
	Customer
	Promo   money.Nano // part of the balance
	Held    money.Nano
	Limit   money.Nano  // that may be used beyond credit, and is part of the balance
	Owed    money.Nano  // of it, what was used and not paid yet
	Cap     *money.Nano // monthly; nil = none
	Zone    string
	Keys    []KeyLine
	Members []MemberLine
	Grants  []GrantLine // newest first, at most 20
}

// KeyLine is a customer's key as the operator sees it.
type KeyLine struct {
	Name, Shown, Project string // Shown is "mr_live_7Kd…c1Qe"
	LastUsed             time.Time
	Used                 money.Nano  // this month
	Cap                  *money.Nano // per month
	State                string      // active, expired, revoked
}

// MemberLine is a person of a customer.
type MemberLine struct {
	Email, Role string
	LastSeen    time.Time
}

// GrantLine is credit given.
type GrantLine struct {
	At     time.Time
	Amount money.Nano
	Left   money.Nano
	Promo  bool
	Ends   time.Time // zero = never
	Reason string
	By     string
}

// NewCustomer is what the form asks for.
type NewCustomer struct {
	Name, Email, Zone string      // Email is the first owner's; Zone an IANA name
	Credit            *money.Nano // first credit; nil = none
}

// Grant is credit to give.
type Grant struct {
	ID     ids.ID
	Org    ids.ID
	Amount money.Nano
	Promo  bool
	Reason string
	Ends   time.Time // zero = never
}

// RevenueRow is one customer's usage of one model in a month.
type RevenueRow struct {
	Org      ids.ID
	OrgName  string
	Model    string
	Requests int64
	Usage    usage.Vector
	Revenue  money.Nano
}

// Reconciliation is the last run with its lines.
type Reconciliation struct {
	Reconciled
	Lines []ReconcileLine
}

// ReconcileLine is one classified part of the comparison.
type ReconcileLine struct {
	Side   string // engine, events, ledger, invoices, payments
	Class  string // "billed", "probe and golden", "abandoned attempt", …
	Count  int64
	Tokens int64
	Amount money.Nano
	Note   string // "no independent source" for attached engines
}

// ExceptionList is what the money path could not book as usual.
type ExceptionList struct {
	Quarantine []Quarantined // that waits for a decision
	Waiting    int64         // how many do, on all pages
	Overruns   []Overrun
	Next       string // cursor of older ones of both kinds
}

// Quarantined is an event that was set aside and not charged. What of it cannot be read is empty.
type Quarantined struct {
	ID      ids.ID
	At      time.Time // when it was set aside
	Request ids.ID
	OrgName string
	Model   string
	Reason  string
}

// QuarantinedDetail is one event in quarantine, as its gateway logged it.
type QuarantinedDetail struct {
	Quarantined
	Org                  ids.ID
	Key                  string
	Started, First, Done time.Time
	Ending               usage.Ending
	Status               int // HTTP
	Usage                usage.Vector
	Reported             string // the engine's own usage object
	Logged               string // the whole event
	Decision             string // booked or dismissed; "" = it waits
	DecidedBy, Why       string
	DecidedAt            time.Time
}

// Overrun is what a customer received above an allotment; the operator bears it.
type Overrun struct {
	At      time.Time
	Request ids.ID
	OrgName string
	Amount  money.Nano
	Reason  string
}

// AuditList is a page of the audit log over all customers, newest first.
type AuditList struct {
	Entries []ui.AuditEntry
	Next    string
}

// Outbox holds messages that could not be mailed because no mail server is set, newest first.
type Outbox struct {
	Mails bool // a mail server is set: messages are sent, not kept
	Items []Message
}

// Message is one sign-in link waiting to be handed over.
type Message struct {
	At      time.Time
	To      string
	Subject string
	News    bool // holds no link: nothing has to be handed over
	Sent    bool
	Link    string // "" when used or expired
	Expires time.Time
	Used    bool
}
