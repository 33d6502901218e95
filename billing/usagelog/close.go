package usagelog

import (
	"context"
	"fmt"
	"time"
)

// flushPoll is how often Flush looks whether everything is acknowledged. It runs at a gateway's end only.
const flushPoll = time.Millisecond

// Flush waits until everything appended so far is acknowledged, and makes sure that LastAcked speaks of the log as it is.
func (l *Log) Flush(ctx context.Context) error {
	tick := time.NewTicker(flushPoll)
	defer tick.Stop()
	for l.writer.events.Load() > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("usagelog: %d events are not acknowledged: %w", l.writer.events.Load(), ctx.Err())
		case <-tick.C:
		}
	}
	return l.verify(ctx)
}

// verify notices a stream that was replaced behind the log's back. Where this process's events end in the new one is not
// known then; the end of the log is a safe answer, as whoever waits for it waits a little longer.
func (l *Log) verify(ctx context.Context) error {
	info, err := Inspect(ctx, l.js)
	if err != nil {
		return err
	}
	l.adopt(info.Incarnation, info.Last)
	return nil
}

// Close admits nothing more, flushes, and ends the log's goroutines. An error that tells of lost events means that they
// could not be recorded before ctx ended and are gone with this process.
func (l *Log) Close(ctx context.Context) error {
	if l.closed.Swap(true) {
		return nil
	}
	err := l.Flush(ctx)
	l.stop()
	l.stopLag()
	l.wg.Wait()
	if left := l.writer.events.Load(); left > 0 {
		l.cfg.Logger.Error("usage events are lost: the log did not take them", "events", left, "err", err)
		return fmt.Errorf("usagelog: %d events are lost: %w", left, err)
	}
	return err
}
