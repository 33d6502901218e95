package hub

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

const (
	maxJournalBytes = 1 << 20 // of MaxAttempts records
	// maxSkew is how far in the future a record's start may lie; beyond it a clock is wrong and the record is not believed.
	maxSkew = 24 * time.Hour
)

// store keeps a batch of journal records of this host. Records that cannot be true are left out and logged: an agent that
// waited for them to be taken would never ship another.
func (h *Hub) store(r *http.Request, me *hostLink) error {
	var in []wire.Attempt
	if err := read(r, maxJournalBytes, &in); err != nil {
		return err
	}
	if len(in) > wire.MaxAttempts {
		return fault.New(fault.TooLarge, "At most %d records at once.", wire.MaxAttempts)
	}
	records := newest(in)
	own, err := h.unitsOf(r.Context(), me.id, records)
	if err != nil {
		return err
	}
	p := q.StoreAttemptsParams{HostID: me.id}
	latest := h.cfg.Clock.Now().Add(maxSkew).UnixMilli()
	impossible, foreign, example := 0, 0, ids.Nil
	for _, a := range records {
		if !possible(&a, latest) {
			impossible, example = impossible+1, a.ID
			continue
		}
		if !own[a.Unit] {
			foreign, example = foreign+1, a.ID
			continue
		}
		p.Ids, p.Units, p.Kinds = append(p.Ids, a.ID), append(p.Units, a.Unit), append(p.Kinds, a.Kind)
		p.Prompts, p.Cacheds = append(p.Prompts, a.Prompt), append(p.Cacheds, a.Cached)
		p.Generateds, p.HandedOvers = append(p.Generateds, a.Generated), append(p.HandedOvers, a.HandedOver)
		p.Endings = append(p.Endings, a.Ending)
		p.StartedMs, p.EndedMs = append(p.StartedMs, a.StartedMS), append(p.EndedMs, a.EndedMS)
	}
	if impossible+foreign > 0 {
		h.cfg.Log.Error("journal records were left out", "host", me.id, "impossible", impossible, "of_units_not_its_own", foreign, "attempt", example)
	}
	if foreign > 0 {
		h.foreign(me.id, "its journal has attempts of another host's unit", me.address)
	}
	if len(p.Ids) == 0 {
		return nil
	}
	return h.inTx(r.Context(), func(tx pgx.Tx) error { return q.New(tx).StoreAttempts(r.Context(), p) })
}

// unitsOf gives those units of the records that are the host's, or have been.
func (h *Hub) unitsOf(ctx context.Context, host ids.ID, records map[ids.ID]wire.Attempt) (map[ids.ID]bool, error) {
	units := make(map[ids.ID]bool)
	for _, a := range records {
		units[a.Unit] = false
	}
	err := h.inTx(ctx, func(tx pgx.Tx) error {
		own, err := q.New(tx).UnitsOfHost(ctx, q.UnitsOfHostParams{Ids: slices.Collect(maps.Keys(units)), HostID: host})
		for _, id := range own {
			units[id] = true
		}
		return err
	})
	return units, err
}

// newest leaves one record per attempt: an ended one before a snapshot, else the last. One statement may not touch a row
// twice.
func newest(in []wire.Attempt) map[ids.ID]wire.Attempt {
	out := make(map[ids.ID]wire.Attempt, len(in))
	for _, a := range in {
		if old, ok := out[a.ID]; !ok || old.Ending == wire.EndOpen {
			out[a.ID] = a
		}
	}
	return out
}

func possible(a *wire.Attempt, latestMS int64) bool {
	switch a.Kind {
	case wire.KindServe, wire.KindProbe, wire.KindGolden:
	default:
		return false
	}
	switch a.Ending {
	case wire.EndComplete, wire.EndCallerLeft, wire.EndEngineFailed, wire.EndAgentDied, wire.EndOpen:
	default:
		return false
	}
	for _, n := range [...]int64{a.Prompt, a.Cached, a.Generated, a.HandedOver} {
		if n < 0 || n > usage.MaxTokens {
			return false
		}
	}
	return a.ID != ids.Nil && a.StartedMS > 0 && a.StartedMS <= latestMS && a.EndedMS >= 0 && a.EndedMS <= latestMS
}
