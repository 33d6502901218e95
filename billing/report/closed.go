package report

import (
	"sync"
	"time"
)

// A page over a month adds up every rollup of it, and is read again whenever something new was rated. Days that are over
// hardly change, so what was read of them is kept for a while; so are hours that are over.
const (
	closedAfter  = 2 * time.Hour   // a day is over when its last requests have ended and are rated
	closedFor    = 5 * time.Minute // how long a day is kept: news of it is seen that much later
	maxKeptCells = 100_000         // of one kind; about 25 MB
)

// closed remembers what was read of days that are over, by everything that was asked. The zero value is ready.
type closed[K comparable, C any] struct {
	mu    sync.Mutex
	days  map[K]keptDay[C]
	cells int
}

type keptDay[C any] struct {
	cells []C
	read  time.Time
}

// get gives the cells of a day, if it is known. They are shared: copy before you change them.
func (c *closed[K, C]) get(key K, now time.Time) ([]C, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	day, ok := c.days[key]
	return day.cells, ok && now.Sub(day.read) < closedFor
}

// put keeps what was read.
func (c *closed[K, C]) put(key K, cells []C, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.days == nil {
		c.days = map[K]keptDay[C]{}
	}
	c.cells += len(cells) - len(c.days[key].cells)
	c.days[key] = keptDay[C]{cells, now}
	if c.cells > maxKeptCells || len(c.days) > maxKeptCells {
		c.days, c.cells = nil, 0
	}
}

// readDays gives the cells of every step, by its start: those that are known, and the others by read, which gives them for
// some of the steps.
func readDays[K comparable, C any](c *closed[K, C], t steps, now time.Time, key func(start, stop int64) K, read func(t steps) (map[int64][]C, error)) (map[int64][]C, error) {
	all := make(map[int64][]C, len(t.starts))
	var missing steps
	for i, start := range t.starts {
		if cells, ok := c.get(key(start.Unix(), t.stops[i].Unix()), now); ok && t.whole[i] {
			all[start.Unix()] = cells
			continue
		}
		missing.add(start, t.stops[i], t.whole[i])
	}
	if len(missing.starts) == 0 {
		return all, nil
	}
	found, err := read(missing)
	if err != nil {
		return nil, err
	}
	for i, start := range missing.starts {
		cells := found[start.Unix()]
		all[start.Unix()] = cells
		if missing.whole[i] && now.Sub(missing.stops[i]) >= closedAfter {
			c.put(key(start.Unix(), missing.stops[i].Unix()), cells, now)
		}
	}
	return all, nil
}
