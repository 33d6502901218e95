package db

import (
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/internal/ids"
)

// Scope says as whom a transaction runs and how. The zero value is not usable: start from Org or System.
type Scope struct {
	role      string
	org       ids.ID
	readOnly  bool
	isolation pgx.TxIsoLevel
	timeout   time.Duration
	async     bool
}

// Org is one organization: row-level security shows its rows and no others. The nil id sees no tenant rows at all.
func Org(id ids.ID) Scope { return Scope{role: "millrace_app", org: id} }

// System is the program itself: it sees every organization, so what it is given from outside must be checked by hand.
func System() Scope { return Scope{role: "millrace_system"} }

// ReadOnly refuses writes.
func (s Scope) ReadOnly() Scope { s.readOnly = true; return s }

// Snapshot reads one state of the database throughout (repeatable read).
func (s Scope) Snapshot() Scope { s.isolation = pgx.RepeatableRead; return s }

// Serializable behaves as if transactions ran one after another. InTx repeats those that collide.
func (s Scope) Serializable() Scope { s.isolation = pgx.Serializable; return s }

// Timeout bounds each statement, instead of the pool's bound. It is rounded up to a millisecond; 0 keeps the pool's.
func (s Scope) Timeout(d time.Duration) Scope { s.timeout = d; return s }

// Relaxed lets the commit return before it is on disk: for what may be lost in a power cut and is never money.
func (s Scope) Relaxed() Scope { s.async = true; return s }

// begin is everything that opens the transaction, sent in one round trip. Role and isolation are our own constants and a
// UUID prints as hexadecimal digits and dashes only, so nothing here can be injected.
func (s Scope) begin() string {
	q := "begin"
	if s.isolation != "" {
		q += " isolation level " + string(s.isolation)
	}
	if s.readOnly {
		q += " read only"
	}
	q += "; set local role " + s.role
	if s.org != ids.Nil {
		q += "; set local millrace.org = '" + s.org.String() + "'"
	}
	if s.timeout > 0 {
		q += "; set local statement_timeout = " + milliseconds(s.timeout+time.Millisecond-1)
	}
	if s.async {
		q += "; set local synchronous_commit = off"
	}
	return q
}
