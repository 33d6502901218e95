package usagelog

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/db/bus"
	"millrace/internal/clock"
)

// Defaults of Config.
const (
	defaultMaxBacklogEvents        = 20_000
	defaultMaxBacklogBytes  int64  = 64 << 20
	defaultMaxBacklogAge           = 2 * time.Second
	defaultMinDiskFree      uint64 = 1 << 30
	defaultMaxRaterLag             = 10 * time.Minute
)

// Config says where the log is and when it is too far behind. Zero limits take the defaults.
type Config struct {
	Bus      *bus.Bus // a connection of its own, so that no slow subscriber can hurt the log
	Clock    clock.Clock
	Logger   *slog.Logger          // nil = slog.Default()
	Metrics  prometheus.Registerer // nil = none
	Replicas int                   // 1 (default), or 3 on a cluster
	MaxBytes int64                 // of the stream; 0 = as much as the disk holds

	DiskFree func() (bytes uint64, err error) // nil = not known (the log is on another machine)

	MaxBacklogEvents int           // 0 = 20,000 events not acknowledged
	MaxBacklogBytes  int64         // 0 = 64 MiB of them
	MaxBacklogAge    time.Duration // 0 = 2 s, of the oldest
	MinDiskFree      uint64        // 0 = 1 GiB
	MaxRaterLag      time.Duration // 0 = 10 min
}

func (c Config) withDefaults() (Config, error) {
	if c.Bus == nil || c.Clock == nil {
		return c, errors.New("usagelog: Config needs Bus and Clock")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Replicas = max(c.Replicas, 1)
	setDefault(&c.MaxBacklogEvents, defaultMaxBacklogEvents)
	setDefault(&c.MaxBacklogBytes, defaultMaxBacklogBytes)
	setDefault(&c.MaxBacklogAge, defaultMaxBacklogAge)
	setDefault(&c.MinDiskFree, defaultMinDiskFree)
	setDefault(&c.MaxRaterLag, defaultMaxRaterLag)
	return c, nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
