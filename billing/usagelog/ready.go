package usagelog

import (
	"context"
	"encoding/json"
	"time"

	"millrace/internal/fault"
)

// RetryAfter is what a caller is told while the log does not keep up.
const RetryAfter = 2 * time.Second

const (
	diskInterval = time.Second      // how often the free space is asked
	lagStale     = 15 * time.Second // a lag that was told longer ago says nothing
)

// Ready is nil while new paid requests may be admitted, else a fault of kind Unavailable: events wait too long, too many
// of them wait, the disk is nearly full, or the rater is too far behind. It costs a few atomic loads.
func (l *Log) Ready() error {
	events := l.writer.events.Load()
	switch {
	case l.closed.Load():
		return notReady("closing", "This gateway is stopping.")
	case events > int64(l.cfg.MaxBacklogEvents), l.writer.bytes.Load() > l.cfg.MaxBacklogBytes:
		return notReady("usage_log_full", "Usage cannot be recorded fast enough.")
	case events > 0 && l.oldest() > l.cfg.MaxBacklogAge:
		return notReady("usage_log_stuck", "Usage cannot be recorded at the moment.")
	case l.diskLow.Load():
		return notReady("disk_full", "Usage cannot be recorded: the disk is nearly full.")
	case l.raterLag() > l.cfg.MaxRaterLag:
		return notReady("rater_behind", "Usage is not being accounted for fast enough.")
	}
	return nil
}

func notReady(code, message string) error {
	return fault.New(fault.Unavailable, "%s Please retry shortly.", message).WithCode(code).WithRetryAfter(RetryAfter)
}

// Backlog is what is not acknowledged yet, and how long the oldest of it has waited.
func (l *Log) Backlog() (events, bytes int64, age time.Duration) {
	return l.writer.events.Load(), l.writer.bytes.Load(), l.oldest()
}

func (l *Log) oldest() time.Duration {
	at := l.writer.oldest.Load()
	if at == 0 {
		return 0
	}
	return l.cfg.Clock.Now().Sub(time.Unix(0, at))
}

func (l *Log) hearLag(_ string, data []byte) {
	var lag Lag
	if json.Unmarshal(data, &lag) == nil {
		l.lag.Store(&heardLag{time.Duration(lag.MS) * time.Millisecond, l.cfg.Clock.Now()})
	}
}

// raterLag is the lag told last. Silence says nothing: a rater that is away costs no customer his service, as allotments
// bound what can be spent meanwhile.
func (l *Log) raterLag() time.Duration {
	h := l.lag.Load()
	if h == nil || h.lag <= l.cfg.MaxRaterLag || l.cfg.Clock.Now().Sub(h.at) > lagStale {
		return 0
	}
	return h.lag
}

func (l *Log) watchDisk(ctx context.Context) {
	tick := time.NewTicker(diskInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.checkDisk()
		}
	}
}

func (l *Log) checkDisk() {
	free, err := l.cfg.DiskFree()
	if err != nil {
		l.cfg.Logger.Warn("the free space for the usage log is not known", "err", err)
		return
	}
	if low := free < l.cfg.MinDiskFree; l.diskLow.Swap(low) != low {
		l.cfg.Logger.Warn("the disk of the usage log", "nearly_full", low, "free_bytes", free)
	}
}
