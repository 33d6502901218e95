package rate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/ids"
)

// position is how far the log is rated.
type position struct {
	incarnation string
	seq         uint64
	at          time.Time // when the log stored message seq; zero = not known
}

// locate finds where to begin. It notices a log whose beginning is gone (listed as a gap), a log that was rolled back (it
// is read from its beginning again) and a database that is an older copy (all epochs are voided).
func (r *Rater) locate(ctx context.Context) (*position, error) {
	ctx, cancel := context.WithTimeout(ctx, readerTimeout)
	defer cancel()
	info, err := usagelog.Inspect(ctx, r.cfg.Bus.JetStream())
	if err != nil {
		return nil, err
	}
	pos, err := r.stored(ctx, info.Incarnation)
	if err != nil {
		return nil, err
	}
	if err := r.checkAge(ctx, *pos); err != nil {
		return nil, err
	}
	back, err := r.rolledBack(ctx, info, *pos)
	if err != nil {
		return nil, err
	}
	if back {
		r.cfg.Logger.Error("the usage log was rolled back: it is read again from its beginning; what is booked stays so", "rated_to", pos.seq, "log_ends", info.Last)
		r.meters.rollbacks.Inc()
		// First the mark: a position behind it would look like an older copy of the database.
		begin := position{incarnation: pos.incarnation, seq: info.First - 1}
		r.mark.reach(begin)
		if err := r.mark.put(ctx, begin); err != nil {
			return nil, err
		}
		nothing := func(pgx.Tx) error { return nil }
		if err := r.move(ctx, pos, info.First-1, nothing); err != nil {
			return nil, err
		}
	}
	if info.First > pos.seq+1 {
		if err := r.noteGap(ctx, pos, info.First-1); err != nil {
			return nil, err
		}
	}
	return pos, nil
}

// stored reads the position, and begins one for a log that is new. What was not rated of the logs before it is listed.
func (r *Rater) stored(ctx context.Context, incarnation string) (*position, error) {
	pos := &position{incarnation: incarnation}
	var tails []q.ReplacedLogsRow
	err := r.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		queries := q.New(tx)
		begun, err := queries.StartRaterOffset(ctx, q.StartRaterOffsetParams{Shard: usagelog.Shard, Incarnation: incarnation})
		if err != nil {
			return err
		}
		if tails = nil; begun > 0 {
			if tails, err = listTails(ctx, queries, incarnation); err != nil {
				return err
			}
		}
		row, err := queries.RaterOffset(ctx, q.RaterOffsetParams{Shard: usagelog.Shard, Incarnation: incarnation})
		if err != nil {
			return err
		}
		if pos.seq = uint64(row.Seq); row.LastAt != nil {
			pos.at = *row.LastAt
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("rate: read the position: %w", err)
	}
	for _, t := range tails {
		r.cfg.Logger.Error("the usage log was replaced: what the old one held and was not rated can no longer be billed", "old", t.Incarnation, "rated_to", t.Rated, "known_to_reach", t.Seen)
		r.meters.gaps.Inc()
	}
	return pos, nil
}

// listTails lists the ends of the logs that a new one replaced. How far they went died with them: known is what was rated,
// and how far gateways say they had come at their last heartbeats.
func listTails(ctx context.Context, queries *q.Queries, incarnation string) ([]q.ReplacedLogsRow, error) {
	tails, err := queries.ReplacedLogs(ctx, q.ReplacedLogsParams{Shard: usagelog.Shard, Incarnation: incarnation})
	if err != nil {
		return nil, err
	}
	for _, t := range tails {
		gap := q.InsertLogGapParams{ID: ids.New(), Shard: usagelog.Shard, Incarnation: t.Incarnation, FromSeq: t.Rated + 1}
		if t.Seen > t.Rated {
			gap.ToSeq = &t.Seen
		}
		if err := queries.InsertLogGap(ctx, gap); err != nil {
			return nil, err
		}
	}
	return tails, nil
}

// rolledBack reports whether the log has lost messages that were rated: a server that lost power may, if it does not sync.
// New messages would then take the old numbers, and reading on from the position would skip them.
func (r *Rater) rolledBack(ctx context.Context, info usagelog.Info, pos position) (bool, error) {
	if info.Last < pos.seq {
		return true, nil
	}
	if pos.seq == 0 || pos.at.IsZero() || info.First > pos.seq {
		return false, nil
	}
	stream, err := r.cfg.Bus.JetStream().Stream(ctx, bus.LogStream)
	if err != nil {
		return false, fmt.Errorf("rate: the log: %w", err)
	}
	m, err := stream.GetMsg(ctx, pos.seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil // expired just now
	}
	if err != nil {
		return false, fmt.Errorf("rate: read message %d: %w", pos.seq, err)
	}
	// PostgreSQL keeps microseconds.
	return m.Time.Truncate(time.Microsecond).Sub(pos.at.Truncate(time.Microsecond)).Abs() > time.Microsecond, nil
}

// noteGap lists messages that are gone before they were rated, and goes on behind them.
func (r *Rater) noteGap(ctx context.Context, pos *position, to uint64) error {
	r.cfg.Logger.Error("part of the usage log is gone before it was rated: its answers can no longer be billed", "from_seq", pos.seq+1, "to_seq", to)
	r.meters.gaps.Inc()
	end := int64(to)
	return r.move(ctx, pos, to, func(tx pgx.Tx) error {
		return q.New(tx).InsertLogGap(ctx, q.InsertLogGapParams{ID: ids.New(), Shard: usagelog.Shard, Incarnation: pos.incarnation,
			FromSeq: int64(pos.seq + 1), ToSeq: &end})
	})
}

// move sets the position to a message that was not rated, and does what belongs to it in the same transaction.
func (r *Rater) move(ctx context.Context, pos *position, seq uint64, also func(tx pgx.Tx) error) error {
	err := r.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		n, err := q.New(tx).AdvanceRater(ctx, q.AdvanceRaterParams{Shard: usagelog.Shard, Incarnation: pos.incarnation,
			OldSeq: int64(pos.seq), Seq: int64(seq)})
		if err != nil {
			return fmt.Errorf("rate: move the position: %w", err)
		}
		if n == 0 {
			return errLost
		}
		return also(tx)
	})
	if err == nil {
		pos.seq, pos.at = seq, time.Time{}
	}
	return err
}

// watch waits while another rater works, and returns when it has stopped with work left.
func (r *Rater) watch(ctx context.Context) {
	r.voice.silence()
	var last position
	for first := true; ctx.Err() == nil; first = false {
		sleep(ctx, standbyWait)
		info, err := usagelog.Inspect(ctx, r.cfg.Bus.JetStream())
		if err != nil {
			continue
		}
		now, err := r.stored(ctx, info.Incarnation)
		if err != nil {
			continue
		}
		same := now.incarnation == last.incarnation && now.seq == last.seq
		if !first && same && info.Last > now.seq {
			return
		}
		last = *now
	}
}
