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

const (
	lineBuffer = 64 << 10
	factBuffer = 4 << 10 // of each linked host, for facts of the usual size; a longer one grows it
)

// facts reads a host's stream of facts until it ends.
func (h *Hub) facts(r *http.Request, me *hostLink) error {
	own := ownUnits{hub: h, me: me}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(make([]byte, factBuffer), wire.MaxFactBytes)
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
	generation int64            // what known was learnt at: units come and go with it
	known      map[telling]bool // nil = nothing yet
	foreign    int              // of known, those that are not the host's
}

// telling is a unit that a host tells of, and the unit that is to answer for it; Nil = itself.
type telling struct{ unit, head ids.ID }

// maxForeign bounds what a host may ask of the database and leave in the log by telling of others' units. A few are
// nobody's fault: units move.
const maxForeign = 100

var errForeign = fault.New(fault.Forbidden, "The host tells of too many units that are not its own.")

func (o *ownUnits) all(r *http.Request, f wire.Fact) (bool, error) {
	if generation, _ := o.hub.desires(o.me); o.known == nil || generation != o.generation {
		o.generation, o.known = generation, map[telling]bool{}
	}
	for _, t := range [...]telling{ofLoad(f.Load), ofKV(f.KV)} {
		if t.unit == ids.Nil {
			continue
		}
		if own, err := o.one(r, t); err != nil || !own {
			return false, err
		}
	}
	return true, nil
}

func (o *ownUnits) one(r *http.Request, t telling) (own bool, err error) {
	if own, seen := o.known[t]; seen {
		return own, nil
	}
	err = o.hub.inTx(r.Context(), func(tx pgx.Tx) (err error) {
		own, err = q.New(tx).IsHostUnit(r.Context(), q.IsHostUnitParams{ID: t.unit, HostID: o.me.id, Head: t.head})
		return err
	})
	if err != nil {
		return false, err
	}
	if !own {
		if o.foreign++; o.foreign > maxForeign {
			return false, errForeign
		}
		o.hub.cfg.Log.Warn("a host told of a unit that is not its own", "host", o.me.id, "unit", t.unit, "head", t.head)
		o.hub.foreign(o.me.id, "it told of another host's unit", o.me.address)
	}
	o.known[t] = own
	return own, nil
}

func ofLoad(l *wire.Load) telling {
	if l == nil {
		return telling{}
	}
	return telling{unit: l.Unit}
}

func ofKV(kv *wire.KV) telling {
	if kv == nil {
		return telling{}
	}
	return telling{kv.Unit, kv.Head}
}
