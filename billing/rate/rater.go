package rate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/jackc/pgx/v5"

	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/q"
)

// Rater reads the usage log and books it. Several may run on one database: one works, the others watch it.
type Rater struct {
	cfg    Config
	meters *meters
	voice  *voice
	mark   *mark
	at     func(step string) error // told every step; tests fail there
}

// errLost means that another rater moved the position.
var errLost = errors.New("rate: another rater is at work")

// New makes a rater. Run starts it.
func New(c Config) (*Rater, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Rater{cfg: c, mark: &mark{js: c.Bus.JetStream(), log: c.Logger}, at: func(string) error { return nil }}
	if r.meters, err = newMeters(c.Metrics); err != nil {
		return nil, err
	}
	r.voice = newVoice(c, r.meters)
	return r, nil
}

// Run rates until ctx ends. It outlives a database or a log that is away.
func (r *Rater) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.voice.run(ctx) })
	wg.Go(func() { r.makeDaysAhead(ctx) })
	wg.Go(func() { r.mark.run(ctx) })
	pause := firstRetry
	for ctx.Err() == nil {
		began := r.cfg.Clock.Now()
		err := r.session(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errLost):
			r.watch(ctx)
			continue
		case errors.Is(err, usagelog.ErrNoLog): // the first gateway makes one
			r.voice.silence()
			sleep(ctx, noLogWait)
			continue
		case r.cfg.Clock.Now().Sub(began) > longestRetry:
			pause = firstRetry
		}
		r.voice.silence()
		r.cfg.Logger.Warn("the rater looks at the log again", "in", pause, "because", err)
		sleep(ctx, pause)
		pause = min(2*pause, longestRetry)
	}
}

// session rates from the stored position until something is not as it was.
func (r *Rater) session(ctx context.Context) error {
	pos, err := r.locate(ctx)
	if err != nil {
		return err
	}
	in, err := openReader(ctx, r.cfg.Bus.JetStream(), r.cfg.Clock, *pos, readAhead*r.cfg.Batch)
	if err != nil {
		return err
	}
	defer in.close()
	r.voice.caughtUp()
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		b, err := in.collect(ctx, r.cfg.Batch, pace.C)
		if err != nil {
			return err
		}
		r.voice.behind(b.oldest)
		pace.Reset(r.cfg.Pace)
		if b.first != pos.seq+1 {
			if err := r.noteGap(ctx, pos, b.first-1); err != nil {
				return err
			}
		}
		if err := r.persist(ctx, *pos, b); err != nil {
			return err
		}
		pos.seq, pos.at = b.last, b.lastAt
		r.mark.reach(*pos)
		if !b.more {
			r.voice.caughtUp()
		}
	}
}

// persist books a batch, however often it takes. Only a position that somebody else moved ends it.
func (r *Rater) persist(ctx context.Context, pos position, b *batch) error {
	for pause := firstRetry; ; pause = min(2*pause, longestRetry) {
		try, cancel := context.WithTimeout(ctx, batchTimeout)
		booked, err := r.rate(try, pos, b)
		cancel()
		if err == nil {
			r.voice.tell(booked)
			r.meters.count(b, booked)
			return nil
		}
		if errors.Is(err, errLost) || ctx.Err() != nil {
			return err
		}
		r.cfg.Logger.Error("a batch of usage was not booked: it is tried again", "first_seq", b.first, "events", len(b.entries), "in", pause, "err", err)
		sleep(ctx, pause)
	}
}

// rate books a batch and moves the position. A large batch is booked in several transactions at once, each of whole
// organizations, and the position follows when all are committed: what is booked is known by its id, so a rater that
// dies in between repeats nothing.
func (r *Rater) rate(ctx context.Context, pos position, b *batch) (booked []*entry, err error) {
	lanes := min(r.cfg.Lanes, 1+len(b.entries)/laneEvents)
	if lanes > 1 {
		if booked, err = r.rateLanes(ctx, pos, b, lanes); err != nil {
			return nil, err
		}
	}
	err = r.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		if err := r.advance(ctx, tx, pos, b); err != nil {
			return err
		}
		if lanes > 1 {
			return nil
		}
		booked, err = r.work(pos).settle(ctx, tx, b.entries)
		return err
	})
	return booked, err
}

func (r *Rater) rateLanes(ctx context.Context, pos position, b *batch, lanes int) ([]*entry, error) {
	parts := make([][]*entry, lanes)
	for _, e := range b.entries {
		lane := xxhash.Sum64(e.ev.Org[:]) % uint64(lanes)
		parts[lane] = append(parts[lane], e)
	}
	booked, errs := make([][]*entry, lanes), make([]error, lanes)
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			errs[i] = r.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) (err error) {
				if err := r.stillAt(ctx, tx, pos); err != nil {
					return err
				}
				booked[i], err = r.work(pos).settle(ctx, tx, part)
				return err
			})
		})
	}
	wg.Wait()
	var all []*entry
	for _, list := range booked {
		all = append(all, list...)
	}
	return all, errors.Join(errs...)
}

func (r *Rater) work(pos position) *work {
	return &work{from: source{pos.incarnation, usagelog.Shard}, now: r.cfg.Clock.Now(), at: r.at}
}

// advance moves the position from before the batch to its end; of two raters one wins.
func (r *Rater) advance(ctx context.Context, tx pgx.Tx, pos position, b *batch) error {
	if err := r.at("advance"); err != nil {
		return err
	}
	n, err := q.New(tx).AdvanceRater(ctx, q.AdvanceRaterParams{Shard: usagelog.Shard, Incarnation: pos.incarnation,
		OldSeq: int64(pos.seq), Seq: int64(b.last), LastAt: &b.lastAt})
	if err != nil {
		return fmt.Errorf("rate: move the position: %w", err)
	}
	if n == 0 {
		return errLost
	}
	return r.at("advanced")
}

func (r *Rater) stillAt(ctx context.Context, tx pgx.Tx, pos position) error {
	now, err := q.New(tx).RaterOffset(ctx, q.RaterOffsetParams{Shard: usagelog.Shard, Incarnation: pos.incarnation})
	if err != nil {
		return fmt.Errorf("rate: read the position: %w", err)
	}
	if uint64(now.Seq) != pos.seq {
		return errLost
	}
	return nil
}

// makeDaysAhead makes tomorrow's partitions while nobody waits for them.
func (r *Rater) makeDaysAhead(ctx context.Context) {
	for ctx.Err() == nil {
		today := r.cfg.Clock.Now().UTC().Truncate(24 * time.Hour)
		err := r.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
			return q.New(tx).EnsureDays(ctx, []time.Time{today, today.AddDate(0, 0, 1)})
		})
		wait := dayAheadEvery
		if err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("tomorrow's partitions are not made yet", "err", err)
			wait = longestRetry
		}
		sleep(ctx, wait)
	}
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
