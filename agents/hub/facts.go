package hub

import (
	"bufio"
	"encoding/json"
	"net/http"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

const lineBuffer = 64 << 10

// facts reads a host's stream of facts until it ends.
func (h *Hub) facts(r *http.Request, me *hostLink) error {
	own := ownUnits{hub: h, me: me}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(make([]byte, lineBuffer), wire.MaxFactBytes)
	for lines.Scan() {
		var f wire.Fact
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return fault.New(fault.Invalid, "A fact cannot be read.").WithCause(err)
		}
		ok, err := own.all(r, f)
		if err != nil {
			return err
		}
		if !h.current(me) {
			return nil
		}
		if ok {
			h.fleet.take(me.id, f)
		}
	}
	if err := lines.Err(); err != nil && r.Context().Err() == nil {
		return fault.New(fault.Invalid, "The stream of facts broke off.").WithCause(err)
	}
	return nil
}

// ownUnits checks that a host tells of its own units only: one that was taken over must not draw other hosts' requests,
// and one that a unit was taken from must not contradict the unit's new host.
type ownUnits struct {
	hub        *Hub
	me         *hostLink
	generation int64           // what known was learnt at: units come and go with it
	known      map[ids.ID]bool // nil = nothing yet
}

func (o *ownUnits) all(r *http.Request, f wire.Fact) (bool, error) {
	if generation, _ := o.hub.desires(o.me); o.known == nil || generation != o.generation {
		o.generation, o.known = generation, map[ids.ID]bool{}
	}
	for _, id := range [...]ids.ID{unitOfLoad(f.Load), unitOfKV(f.KV)} {
		if id == ids.Nil {
			continue
		}
		if own, err := o.one(r, id); err != nil || !own {
			return false, err
		}
	}
	return true, nil
}

func (o *ownUnits) one(r *http.Request, id ids.ID) (own bool, err error) {
	if own, seen := o.known[id]; seen {
		return own, nil
	}
	err = o.hub.inTx(r.Context(), func(tx pgx.Tx) (err error) {
		own, err = q.New(tx).IsHostUnit(r.Context(), q.IsHostUnitParams{ID: id, HostID: o.me.id})
		return err
	})
	if err != nil {
		return false, err
	}
	if !own {
		o.hub.cfg.Log.Warn("a host told of a unit that is not its own", "host", o.me.id, "unit", id)
	}
	o.known[id] = own
	return own, nil
}

func unitOfLoad(l *wire.Load) ids.ID {
	if l == nil {
		return ids.Nil
	}
	return l.Unit
}

func unitOfKV(kv *wire.KV) ids.ID {
	if kv == nil {
		return ids.Nil
	}
	return kv.Unit
}
