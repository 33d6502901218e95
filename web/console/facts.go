package console

import (
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// Home is the first page's facts.
type Home struct {
	Balance   Balance
	SpentWeek money.Nano // settled in the last 7 × 24 hours: the rate behind "about 9 days"
	Month     money.Nano // settled since the month began in the viewer's zone
	Cap       *money.Nano
	Saved     money.Nano   // this month: cached prompt tokens × (input price − cached price), at each event's own version
	Prompt    int64        // prompt tokens of this month
	Cached    int64        // of them read from a cache
	Hours     []HourPoint  // the last 24 hours, oldest first; hours without requests included
	FirstTok  ui.Quantiles // time to first token over the last 24 hours
	HasCredit bool         // credit was ever granted or bought
	HasKey    bool         // a key was ever created (the playground's do not count)
	HasCall   bool         // a request was ever recorded
	Simulated bool         // at least one callable model is served by a simulated engine
}

// Balance is an organization's money.
type Balance struct {
	Total     money.Nano // what may still be spent, after holds; negative after a dispute
	Held      money.Nano // promised to running requests (outstanding allotments)
	Promo     money.Nano // part of Total that is promotional
	PromoEnds time.Time  // when the next promotional credit ends; zero = never
}

// HourPoint is one hour of traffic.
type HourPoint struct {
	Start    time.Time
	Requests int64
	Errors   int64         // answered with 5xx, or broken off by the engine
	FirstTok time.Duration // median time to first token; 0 = no stream
}

// Project is a team or application inside the organization.
type Project struct {
	ID   ids.ID
	Name string
	Cap  *money.Nano // per month; nil = none
	Used money.Nano  // settled this month
}

// Key is an API key as a list shows it. The secret is not in it.
type Key struct {
	ID        ids.ID
	Name      string
	Prefix    string // first characters, "mr_live_7Kd"
	Last4     string
	Project   string
	ProjectID ids.ID
	Created   time.Time
	CreatedBy string      // e-mail; may be empty
	LastUsed  time.Time   // zero = never; at most a minute behind
	LastModel string      // may be empty
	Used      money.Nano  // settled this month
	Cap       *money.Nano // per month; nil = none
	Expires   time.Time   // zero = never
	Revoked   time.Time   // zero = not
}

// NewKey is what the form asks for.
type NewKey struct {
	ID      ids.ID // chosen by the form, so that sending it twice makes one key
	Name    string
	Project ids.ID
	Cap     *money.Nano // per month; nil = none
	Expires time.Time   // zero = never
}

// Scope is what a cap is set on.
type Scope string

// The scopes.
const (
	ScopeOrg     Scope = "org"
	ScopeProject Scope = "project"
	ScopeKey     Scope = "key"
)

// CapChange sets or, with a nil Cap, removes a cap.
type CapChange struct {
	Scope     Scope
	ID        ids.ID
	Period    string // day, week, month, total; "" = month
	Cap       *money.Nano
	AlertOnly bool
}

// Limits are the caps of every scope that is not a key; keys carry their own.
type Limits struct {
	OrgID    ids.ID
	Cap      *money.Nano // the organization's, per month
	Used     money.Nano
	Projects []Project
	Keys     []Key     // that can still be used
	Resets   time.Time // when the running month ends
	RPM, TPM int64     // requests and tokens per minute of the organization; 0 = unlimited
	InFlight int64     // requests at the same time; 0 = unlimited
	Rules    []Rule    // every cap there is
	Alerts   []Alert   // newest first
	Low      Low
}

// Low is what the balance must not fall below without people being told.
type Low struct {
	Below money.Nano // 0 = nobody is told
	Since time.Time  // when they were told; zero = the balance is above
}

// Model is a callable model with the prices in force now.
type Model struct {
	Name      string
	Context   int64 // tokens
	MaxOutput int64 // tokens
	Prices    usage.Prices
	Terms     ui.PriceTerms
	Version   ids.ID      // of the price
	Since     time.Time   // the version's effective date
	Next      *PriceAhead // a published change that is not in force yet; nil = none
	Simulated bool
	Available bool // a unit serves it now
}

// PriceAhead is a price that will come into force.
type PriceAhead struct {
	Prices    usage.Prices
	Effective time.Time
}

// Billing is the balance and a page of the ledger.
type Billing struct {
	Balance Balance
	Lines   []LedgerLine // newest first
	Next    string       // cursor of older lines; empty = none
}

// LedgerLine is one movement of the organization's balance.
type LedgerLine struct {
	At     time.Time
	Kind   string // credit, usage, refund, expiry, adjustment
	Text   string // "Usage, 28 November", "Credit granted: welcome"
	Amount money.Nano
	After  money.Nano // the balance behind it
	Ref    string     // transaction id
}

// Member is a person of the organization.
type Member struct {
	Name, Email, Role string
	Joined, LastSeen  time.Time
	Pending           bool // invited, not signed in yet
}

// AuditList is a page of the audit log, newest first.
type AuditList struct {
	Entries []ui.AuditEntry
	Next    string
}
