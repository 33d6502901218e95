package rate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Times of fencing.
const (
	defaultFenceInterval = 500 * time.Millisecond
	// defaultGrace is how long after a proof of death the end of the log is read: what a process wrote into a socket with
	// its last breath still arrives.
	defaultGrace = time.Second
	fenceTimeout = time.Minute
)

// FencerConfig of a Fencer. Zero times take their defaults.
type FencerConfig struct {
	DB       *db.DB
	Bus      *bus.Bus
	Clock    clock.Clock
	Logger   *slog.Logger  // nil = slog.Default()
	Interval time.Duration // 0 = 500 ms, between two looks
	Grace    time.Duration // 0 = 1 s, from a death to reading the log's end
}

// Fencer ends epochs. Several may run on one database.
type Fencer struct {
	cfg FencerConfig
	at  func(step string) error // told every step; tests fail there
}

// NewFencer makes a fencer. Run starts it.
func NewFencer(c FencerConfig) (*Fencer, error) {
	if c.DB == nil || c.Bus == nil || c.Clock == nil {
		return nil, errors.New("rate: FencerConfig needs DB, Bus and Clock")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	setDefault(&c.Interval, defaultFenceInterval)
	setDefault(&c.Grace, defaultGrace)
	return &Fencer{cfg: c, at: func(string) error { return nil }}, nil
}

// Run fences until ctx ends.
func (f *Fencer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		look, cancel := context.WithTimeout(ctx, fenceTimeout)
		if _, err := f.Look(look); err != nil && ctx.Err() == nil && !db.Away(err) {
			f.cfg.Logger.Error("epochs are not fenced for now", "err", err)
		}
		cancel()
		sleep(ctx, f.cfg.Interval)
	}
}

// Fenced is an epoch that ended.
type Fenced struct {
	Epoch    ids.ID
	Returned money.Nano // over all scopes
	Closed   int        // streams that were closed as gateway_died
	LogGone  bool       // its part of the log is gone: it was fenced by what was rated
}

// Look goes once over the epochs that are not fenced, brings each as far as it can, and gives those that ended.
func (f *Fencer) Look(ctx context.Context) ([]Fenced, error) {
	var open []q.EpochsToFenceRow
	err := f.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) (err error) {
		open, err = q.New(tx).EpochsToFence(ctx, f.cfg.Grace.Milliseconds())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rate: epochs to fence: %w", err)
	}
	var ended []Fenced
	var errs []error
	for _, e := range open {
		done, err := f.advance(ctx, e)
		if err != nil {
			errs = append(errs, fmt.Errorf("rate: epoch %s: %w", e.ID, err))
		}
		if done != nil {
			f.cfg.Logger.Info("a gateway's epoch is fenced", "epoch", ids.Format(ids.Epoch, e.ID), "process", e.Process,
				"returned_nano", int64(done.Returned), "streams_closed", done.Closed, "log_gone", done.LogGone)
			ended = append(ended, *done)
		}
	}
	return ended, errors.Join(errs...)
}

// advance takes an epoch one step on: dead, then its log's end known, then rated to it, then fenced.
func (f *Fencer) advance(ctx context.Context, e q.EpochsToFenceRow) (*Fenced, error) {
	switch {
	case e.GoodbyeAt == nil && e.DeadAt == nil:
		return nil, f.findDead(ctx, e)
	case e.LogEnd == nil && e.DeadAt != nil:
		if !e.Settled {
			return nil, nil
		}
		return nil, f.noteEnd(ctx, e)
	case e.LogEnd == nil:
		return nil, errors.New("it said goodbye without the end of its log")
	}
	var end credit.LogEnd
	if err := json.Unmarshal(e.LogEnd, &end); err != nil {
		return nil, fmt.Errorf("the end of its log cannot be read: %w", err)
	}
	rated, gone, err := f.rated(ctx, end)
	if err != nil || !rated && !gone {
		return nil, err
	}
	return f.fence(ctx, e, end, gone && !rated)
}

// findDead marks an epoch whose process is proven to be gone, or that has been silent for longer than anything it
// admitted can run. The database's clock and its own row decide about silence.
func (f *Fencer) findDead(ctx context.Context, e q.EpochsToFenceRow) error {
	proven := e.DataLock != "" && credit.ProvenDead(e.DataLock)
	if !proven && !e.Expired {
		return nil
	}
	return f.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) (err error) {
		if proven {
			_, err = q.New(tx).MarkEpochDead(ctx, e.ID)
		} else {
			_, err = q.New(tx).MarkEpochExpired(ctx, e.ID)
		}
		return err
	})
}

// noteEnd reads where the log ends, after the process was proven dead.
func (f *Fencer) noteEnd(ctx context.Context, e q.EpochsToFenceRow) error {
	info, err := usagelog.Inspect(ctx, f.cfg.Bus.JetStream())
	if errors.Is(err, usagelog.ErrNoLog) {
		return nil // whoever writes next makes one; until then nothing is known
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(credit.LogEnd{Incarnation: info.Incarnation, Seq: map[int]uint64{usagelog.Shard: info.Last}})
	if err != nil {
		return err
	}
	return f.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		_, err := q.New(tx).SetEpochLogEnd(ctx, q.SetEpochLogEndParams{ID: e.ID, LogEnd: text})
		return err
	})
}

// rated reports whether everything up to end is rated, or can no longer be.
func (f *Fencer) rated(ctx context.Context, end credit.LogEnd) (rated, gone bool, err error) {
	if end.Seq[usagelog.Shard] == 0 {
		return true, false, nil // it never wrote
	}
	var seq int64
	err = f.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		row, err := q.New(tx).RaterOffset(ctx, q.RaterOffsetParams{Shard: usagelog.Shard, Incarnation: end.Incarnation})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		seq = row.Seq
		return err
	})
	if err != nil || uint64(seq) >= end.Seq[usagelog.Shard] {
		return err == nil, false, err
	}
	info, err := usagelog.Inspect(ctx, f.cfg.Bus.JetStream())
	if errors.Is(err, usagelog.ErrNoLog) {
		return false, false, nil
	}
	return false, err == nil && info.Incarnation != end.Incarnation, err
}

// fence closes what was running, gives back what is left, and closes the epoch, all in one transaction.
func (f *Fencer) fence(ctx context.Context, e q.EpochsToFenceRow, end credit.LogEnd, gone bool) (*Fenced, error) {
	var done *Fenced
	err := f.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		done = nil
		queries := q.New(tx)
		row, err := queries.LockEpochForFence(ctx, e.ID)
		if err != nil || row.FencedAt != nil {
			return err
		}
		ended := Fenced{Epoch: e.ID, LogGone: gone}
		if gone {
			if err := f.listGone(ctx, tx, end); err != nil {
				return err
			}
		}
		if ended.Closed, err = f.closeStreams(ctx, tx, e.ID); err != nil {
			return err
		}
		if err := f.at("return rests"); err != nil {
			return err
		}
		if ended.Returned, err = credit.ReturnRest(ctx, tx, e.ID); err != nil {
			return err
		}
		if _, err := queries.FenceEpoch(ctx, e.ID); err != nil {
			return err
		}
		done = &ended
		return f.at("fenced")
	})
	if err != nil || done == nil {
		return nil, err
	}
	if err := credit.RemoveLock(e.DataLock); err != nil {
		f.cfg.Logger.Warn("a lock file stays", "err", err)
	}
	return done, nil
}

// closeStreams bills the streams that ran when the gateway died by their last progress. It locks everything of the epoch
// first, in the order of the house: what follows takes no lock that is not held.
func (f *Fencer) closeStreams(ctx context.Context, tx pgx.Tx, epoch ids.ID) (closed int, err error) {
	queries := q.New(tx)
	running, err := queries.ProgressOfEpoch(ctx, epoch)
	if err != nil {
		return 0, err
	}
	var orgs []ids.ID
	var entries []*entry
	now := f.cfg.Clock.Now()
	for i, p := range running {
		e := readEntry(p.Event, 0, i, now)
		e.ev.Progress, e.ev.Ending = 0, usage.GatewayDied
		if e.line, err = e.ev.AppendJSON(nil); err != nil { // what quarantine keeps is the end, not the progress
			return 0, err
		}
		entries, orgs = append(entries, e), append(orgs, p.OrgID)
	}
	if len(orgs) > 0 {
		if _, err := queries.LockLedgerBalances(ctx, sortedSet(orgs)); err != nil {
			return 0, err
		}
	}
	if _, err := queries.LockAllotmentsOfFence(ctx, epoch); err != nil {
		return 0, err
	}
	if _, err := queries.LockBudgetsOfFence(ctx, epoch); err != nil {
		return 0, err
	}
	if len(entries) == 0 {
		return 0, nil
	}
	w := &work{from: source{"epoch " + epoch.String(), usagelog.Shard}, now: now, at: f.at}
	booked, err := w.settle(ctx, tx, entries)
	if err != nil {
		return 0, err
	}
	a := q.DeleteProgressParams{}
	for _, p := range running { // those that went to quarantine too
		a.Orgs, a.Ids = append(a.Orgs, p.OrgID), append(a.Ids, p.EventID)
	}
	return len(booked), queries.DeleteProgress(ctx, a)
}

// listGone lists the part of the log that was never rated and is no longer there.
func (f *Fencer) listGone(ctx context.Context, tx pgx.Tx, end credit.LogEnd) error {
	row, err := q.New(tx).RaterOffset(ctx, q.RaterOffsetParams{Shard: usagelog.Shard, Incarnation: end.Incarnation})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return q.New(tx).ListGoneLog(ctx, q.ListGoneLogParams{ID: ids.New(), Shard: usagelog.Shard, Incarnation: end.Incarnation,
		Rated: row.Seq, ToSeq: int64(end.Seq[usagelog.Shard])})
}
