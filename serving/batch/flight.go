package batch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"millrace/db/q"
)

// flight is the lines of one batch that run now.
type flight struct {
	lines   sync.WaitGroup
	running atomic.Int32
	freed   chan struct{}   // a line has ended
	ctx     context.Context // of the requests
	callOff context.CancelFunc
}

// lines runs every line that has no result. nil: there are none left.
func (h *hold) lines(ctx context.Context) error {
	for {
		f := &flight{freed: make(chan struct{}, 1)}
		f.ctx, f.callOff = context.WithCancel(h.life)
		started, err := h.start(ctx, f)
		h.land(ctx, f)
		f.callOff()
		if err == nil {
			err = h.cause() // a line may have met what pauses the batch
		}
		if err != nil || started == 0 {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// settle runs lines again that were in flight when their gateway died, of a batch that has ended meanwhile: they may be in the
// usage log, so that it could be a lie that they never ran, and one that is paid for. They run under their ids, and have as long
// as lines in flight have.
func (h *hold) settle(ctx context.Context) error {
	if h.endpoint == nil || h.batch.Outcome == Completed || h.batch.InProgressAt == nil {
		return nil
	}
	h.settling = true
	defer func() { h.settling = false }()
	for over := time.Now().Add(h.runner.Grace); ; {
		f := &flight{freed: make(chan struct{}, 1)}
		f.ctx, f.callOff = context.WithDeadline(h.life, over)
		started, err := h.start(ctx, f)
		h.land(ctx, f)
		ended := f.ctx.Err() != nil
		f.callOff()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case ended || err == nil && started == 0:
			return nil // what is left is told as it is
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
		case <-h.runner.stopping:
		case <-time.After(min(settleEvery, time.Until(over))):
		}
	}
}

// start starts lines in their order, as there is room.
func (h *hold) start(ctx context.Context, f *flight) (started int, err error) {
	for after := int32(0); ; {
		var page []q.WaitingLinesRow
		if err := h.runner.store.in(ctx, h.batch.OrgID, func(rows *q.Queries) (err error) {
			page, err = rows.WaitingLines(ctx, q.WaitingLinesParams{OrgID: h.batch.OrgID, BatchID: h.batch.ID, After: after, Started: h.settling, MaxRows: pageLines})
			return err
		}); err != nil || len(page) == 0 {
			return started, err
		}
		for _, l := range page {
			if err := h.await(ctx, f); err != nil {
				return started, err
			}
			started++
			after = l.N
			f.running.Add(1)
			f.lines.Go(func() {
				v := h.line(ctx, f.ctx, l)
				f.running.Add(-1)
				h.runner.rooms.give(h.batch.Model, v)
				select {
				case f.freed <- struct{}{}:
				default:
				}
			})
		}
	}
}

// await waits for room for a line.
func (h *hold) await(ctx context.Context, f *flight) error {
	for {
		if err := h.cause(); err != nil && (!h.settling || errors.Is(err, errStopped)) {
			return err
		}
		if f.running.Load() < maxPerBatch && h.runner.take(h.batch.Model) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		case <-f.freed:
		case <-time.After(slotPoll):
		}
	}
}

// land waits for the lines in flight. When the batch has ended, or is another gateway's, they have a while; when the gateway
// ends, the time that it has. Then they are called off. Lines of a batch that was lost are not called off at once, because
// nobody could write down that they were: they run again under their ids, and an id that nothing was charged for would
// make them free.
func (h *hold) land(ctx context.Context, f *flight) {
	landed := make(chan struct{})
	go func() { // ends with the lines, which end with the call
		f.lines.Wait()
		close(landed)
	}()
	tick := time.NewTicker(slotPoll)
	defer tick.Stop()
	var over time.Time // when the batch ended
	for {
		select {
		case <-landed:
			return
		case <-h.runner.cut:
			f.callOff()
			<-landed
			return
		case now := <-tick.C:
			if cause := h.cause(); over.IsZero() && (errors.Is(cause, errCancelled) || errors.Is(cause, errExpired) || ctx.Err() != nil) {
				over = now
			}
			if !over.IsZero() && now.Sub(over) >= h.runner.Grace {
				f.callOff()
			}
		}
	}
}
