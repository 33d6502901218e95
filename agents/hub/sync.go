package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
)

// sync takes what an agent observes and gives what is desired, as soon as that is not what the agent has.
func (h *Hub) sync(r *http.Request, me *hostLink) (any, error) {
	var in wire.SyncRequest
	if err := read(r, wire.MaxSyncBytes, &in); err != nil {
		return nil, err
	}
	ctx := r.Context()
	if err := h.observe(ctx, me, &in); err != nil {
		return nil, err
	}
	hold := time.NewTimer(wire.SyncWait)
	defer hold.Stop()
	more := h.gateways.more(&in.Observed)
	for {
		known, moved := h.desires(me) // before reading: what moves after it wakes
		out := &wire.SyncResponse{Generation: in.Generation}
		// Who waits for another generation than the newest is read nothing for: a fleet at rest costs the database one look.
		if !in.Wait || known != in.Generation {
			var err error
			if out, err = h.desired(ctx, me); err != nil {
				return nil, err
			}
		}
		if !in.Wait || out.Generation != in.Generation {
			return h.beside(ctx, me, &in.Observed, out), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-moved:
		case <-more:
			return h.beside(ctx, me, &in.Observed, out), nil
		case <-hold.C:
			return h.beside(ctx, me, &in.Observed, out), nil
		}
	}
}

// desired reads the generation and the units that belong to it in one state of the database.
func (h *Hub) desired(ctx context.Context, me *hostLink) (*wire.SyncResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	out := &wire.SyncResponse{}
	err := h.cfg.DB.InTx(ctx, db.System().ReadOnly().Snapshot(), func(tx pgx.Tx) error {
		host, err := q.New(tx).GetHost(ctx, me.id)
		if err == nil && host.Removed {
			err = errRemoved
		}
		if err != nil {
			return err
		}
		units, err := q.New(tx).HostUnits(ctx, me.id)
		if err != nil {
			return err
		}
		out.Generation, out.Desired = host.Generation, make([]wire.Desired, len(units))
		for i, u := range units {
			out.Desired[i] = wire.Desired{Unit: u.ID, Name: u.Name, Generation: u.Generation, Engine: u.Engine, Model: u.UpstreamModel,
				Wanted: u.Wanted, Spec: u.Spec}
		}
		return nil
	})
	if errors.Is(err, errRemoved) || errors.Is(err, pgx.ErrNoRows) {
		return nil, errUnknownHost
	}
	return out, err
}

// observe keeps what an agent sees when it differs from what was kept.
func (h *Hub) observe(ctx context.Context, me *hostLink, in *wire.SyncRequest) error {
	observed, err := json.Marshal(in.Observed)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d %s", in.Generation, observed)
	h.mu.Lock()
	same := me.stored == text
	h.mu.Unlock()
	if same {
		return nil
	}
	moved := false
	err = h.inTx(ctx, func(tx pgx.Tx) (err error) {
		moved, err = q.New(tx).ObserveHost(ctx, q.ObserveHostParams{ID: me.id, Observed: observed, ObservedGeneration: max(in.Generation, 0),
			AgentVersion: in.Observed.AgentVersion, DataUrl: in.Observed.DataURL})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return errUnknownHost
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	me.stored = text
	h.mu.Unlock()
	if moved {
		h.notice()
	}
	return nil
}

// notice makes every process read the catalogue again; a lost one costs the time to the next poll.
func (h *Hub) notice() {
	if err := h.cfg.Bus.Publish(bus.NoticeCatalogue, nil); err != nil {
		h.cfg.Log.Warn("hub: notice not sent", "error", err)
	}
}
