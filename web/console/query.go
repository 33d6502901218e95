package console

import (
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// RequestQuery asks for a page of requests, newest first.
type RequestQuery struct {
	After  string // cursor of the page before; empty = the newest
	Limit  int
	Model  string
	Key    ids.ID
	Failed bool // only those that did not end complete
}

// RequestList is a page of requests.
type RequestList struct {
	Rows []Request
	Next string // cursor of older ones; empty = none
}

// Request is one call as the list shows it.
type Request struct {
	ID        ids.ID
	At        time.Time
	Model     string
	KeyName   string
	Status    int // HTTP
	Ending    usage.Ending
	Streamed  bool
	Usage     usage.Vector
	Cost      money.Nano
	FirstTok  time.Duration // 0 = none
	Took      time.Duration
	Simulated bool
}

// RequestDetail explains one call.
type RequestDetail struct {
	Request
	KeyID      ids.ID
	Project    string
	Dialect    string // chat, responses or messages
	Service    usage.Service
	Prices     usage.Prices // as they were for its prompt's length, its time and its service tier
	Version    ids.ID       // the price version the request was rated at
	Since      time.Time    // the version's effective date
	Estimated  bool         // the cached share is an estimate in the customer's favour
	Attempts   []Attempt    // oldest first; the last one served
	Unit       string       // may be empty
	Entry      ids.ID       // the ledger transaction; Nil when not rated yet
	Quarantine string       // says that it was set aside and not charged; empty = it was not
}

// Attempt is one try at an engine.
type Attempt struct {
	Unit string
	Note string // why it was abandoned; empty for the one that served
}
