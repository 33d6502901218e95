// Package rate turns usage events into charges, exactly once: the rater reads the usage log and books what it says; the
// fence ends the epochs of gateways and gives back what they were allotted and did not use.
//
// It owns usage_events, usage_rollups, stream_progress, rater_offsets, log_gaps and quarantine, and it moves allotments
// and budgets (billing/credit) and posts to the ledger (billing/ledger). It does not own prices, what a gateway admits, or
// what was delivered: the event says that.
//
// Words.
//   - Charge: what the customer pays for an event. Overrun: what it cost beyond that; the operator bears it.
//   - Batch: the messages of the log that are rated together. Position: the sequence in the log up to which all is rated.
//   - Poison: an event that cannot be booked. It goes to quarantine and the batch goes on.
//   - Voided epoch: the database was replaced by an older copy or a standby, so it knows less of the epoch's money than its
//     gateway did. Its events are charged as far as the budgets have room.
//   - Lost epoch: one that the log names and the database does not know. It is made, voided from the start.
//
// Invariants.
//   - An event is booked by the transaction that inserts its row, and by no other. Reading the log again changes nothing:
//     the position only says where to begin.
//   - The position moves with the batch, or after all of its parts have been committed, never before.
//   - charged = min(cost by the price schedule, what the gateway charged, what is left of the allotment in every scope).
//     So used + returned <= allotted, always, and a customer never pays above a cap for what a gateway did.
//   - Locks: rater_offsets, gateway_epochs, ledger_balances, allotments by (budget, epoch), budgets by id.
//   - An epoch's rest returns when its log is rated to its end and its gateway is proven unable to add to it.
package rate

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/db"
	"millrace/db/bus"
	"millrace/internal/clock"
)

// Sizes and times of rating.
const (
	defaultBatch    = 8_000                  // events rated together, at most about
	laneEvents      = 2_000                  // a batch above it is booked in several transactions at once
	defaultLanes    = 2                      // at most so many
	defaultPace     = 100 * time.Millisecond // between two batches: a transaction has a price that many events can share
	standbyWait     = time.Second            // how long a rater that lost watches the winner before it takes over
	batchTimeout    = time.Minute            // for one try at a batch
	firstRetry      = 100 * time.Millisecond
	longestRetry    = 5 * time.Second
	noLogWait       = time.Second // between two looks for a log that does not exist
	readAhead       = 2           // batches, decoded while one is booked
	dayAheadEvery   = time.Hour   // how often tomorrow's partitions are made sure of
	maxQuarantined  = 64 << 10    // bytes of a line that are kept
	maxContextSlack = 1024        // tokens above a model's context that are still believed
)

// Config of a Rater. The zero value of an optional field takes its default.
type Config struct {
	DB      *db.DB
	Bus     *bus.Bus
	Clock   clock.Clock
	Logger  *slog.Logger          // nil = slog.Default()
	Metrics prometheus.Registerer // nil = none

	Batch int           // 0 = 8,000 events
	Lanes int           // 0 = 2 transactions at once, when there is much to do
	Pace  time.Duration // 0 = 100 ms
}

func (c Config) withDefaults() (Config, error) {
	if c.DB == nil || c.Bus == nil || c.Clock == nil {
		return c, errors.New("rate: Config needs DB, Bus and Clock")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	setDefault(&c.Batch, defaultBatch)
	setDefault(&c.Lanes, defaultLanes)
	setDefault(&c.Pace, defaultPace)
	return c, nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
