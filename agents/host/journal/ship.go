package journal

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"millrace/agents/wire"
)

// Times of shipping.
const (
	shipEvery = time.Second      // at most one message that often, unless there is more than one full of records
	openAfter = 15 * time.Second // a running attempt is reported as open then, and again that often
)

// Send stores records at the hub; nil means that they are stored.
type Send func(ctx context.Context, batch []wire.Attempt) error

// Ship sends records as they end, and snapshots of long attempts, until ctx ends. A failed send is tried again with the
// next round: nothing is forgotten meanwhile.
func (j *Journal) Ship(ctx context.Context, send Send) {
	round := time.NewTicker(shipEvery)
	defer round.Stop()
	opened := j.clock.Now()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
		}
		err := j.shipReady(ctx, send)
		if now := j.clock.Now(); err == nil && now.Sub(opened) >= openAfter {
			opened = now
			err = inBatches(ctx, j.open(now.Add(-openAfter).UnixMilli()), send)
		}
		if err != nil && !failing && ctx.Err() == nil {
			j.log.Warn("journal: the hub does not take records now; they are kept", "error", err)
		}
		failing = err != nil
	}
}

// shipReady ships if there may be something.
func (j *Journal) shipReady(ctx context.Context, send Send) error {
	select {
	case <-j.wake:
	default:
		return nil
	}
	err := j.Flush(ctx, send)
	if err != nil {
		j.signal() // again next round
	}
	return err
}

// Flush ships every ended record now. It must not run beside Ship.
func (j *Journal) Flush(ctx context.Context, send Send) error {
	if err := j.shipStuck(ctx, send); err != nil {
		return err
	}
	for {
		seg, ok, err := j.segs.take()
		if err != nil || !ok {
			return err
		}
		records, err := j.segs.read(seg)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // dropped meanwhile for the disk bound
			return err
		}
		if err := inBatches(ctx, records, send); err != nil {
			return err
		}
		if err := j.segs.remove(seg); err != nil {
			return err
		}
	}
}

// shipStuck sends what never reached a segment and frees its slots.
func (j *Journal) shipStuck(ctx context.Context, send Send) error {
	j.mu.Lock()
	stuck := slices.Clone(j.stuck)
	j.mu.Unlock()
	if len(stuck) == 0 {
		return nil
	}
	batch := make([]wire.Attempt, 0, len(stuck))
	for _, i := range stuck {
		batch = append(batch, j.slots.all[i].attempt())
	}
	if err := inBatches(ctx, batch, send); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stuck = slices.DeleteFunc(j.stuck, func(i int32) bool { return slices.Contains(stuck, i) })
	for _, i := range stuck {
		j.slots.all[i].state.Store(slotFree)
		j.free = append(j.free, i)
	}
	return nil
}

func inBatches(ctx context.Context, records []wire.Attempt, send Send) error {
	for batch := range slices.Chunk(records, wire.MaxAttempts) {
		if err := send(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
