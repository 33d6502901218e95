package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"millrace/internal/ids"
)

// Digest identifies a plan by its content. That of no plan is "".
func (p *Plan) Digest() string {
	if p == nil {
		return ""
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic("plan: a plan is made of plain data: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Without is the plan less some units: those that have ended since. Units whose heir is among them end no more.
func (p *Plan) Without(ended ...ids.ID) *Plan {
	q := *p
	q.Units = nil
	for i := range p.Units {
		if !slices.Contains(ended, p.Units[i].ID) {
			q.Units = append(q.Units, p.Units[i].clone())
		}
	}
	return &q
}

// Diff lists what changed from a parent, with the reasons that the plan knows. Removals come first: others may need their
// GPUs.
func (p *Plan) Diff(parent *Plan) []Move {
	texts := map[ids.ID]string{}
	for _, m := range p.Moves {
		texts[m.Unit] = m.Text
	}
	return p.diff(parent, texts)
}

func (p *Plan) diff(parent *Plan, texts map[ids.ID]string) []Move {
	var old Plan
	if parent != nil {
		old = *parent
	}
	was, is := byID(&old), byID(p)
	moves := []Move{}
	for i := range old.Units {
		if u := &old.Units[i]; is[u.ID] == nil {
			moves = append(moves, Move{MoveRemove, u.ID, cmp.Or(texts[u.ID], "It is not in the plan any more.")})
		}
	}
	for i := range p.Units {
		u := &p.Units[i]
		o := was[u.ID]
		if o == nil {
			moves = append(moves, Move{MoveAdd, u.ID, u.Why})
			continue
		}
		if !slices.EqualFunc(o.Pools, u.Pools, equalPool) {
			moves = append(moves, Move{MoveRepair, u.ID, u.Why})
		}
		switch {
		case u.Ends != "" && (o.Ends == "" || o.Heir != u.Heir):
			moves = append(moves, Move{MoveReplace, u.ID, u.Ends})
		case u.Ends == "" && o.Ends != "":
			moves = append(moves, Move{MoveKeep, u.ID, "It was to end, and is needed again."})
		}
	}
	for i := range p.Unmet {
		u := &p.Unmet[i]
		known := slices.ContainsFunc(old.Unmet, func(v Unmet) bool { return v.Model == u.Model && v.Release == u.Release && v.Units == u.Units })
		if !known {
			moves = append(moves, Move{MoveRefuse, ids.Nil, units(u.Units) + " of " + u.Name + ": " + strings.Join(u.Reasons, "; ")})
		}
	}
	return moves
}

func byID(p *Plan) map[ids.ID]*Unit {
	m := make(map[ids.ID]*Unit, len(p.Units))
	for i := range p.Units {
		m[p.Units[i].ID] = &p.Units[i]
	}
	return m
}

func equalPool(a, b Pool) bool {
	return a.Role == b.Role && slices.EqualFunc(a.Replicas, b.Replicas, func(x, y Replica) bool { return equalReplica(&x, &y) })
}

func equalReplica(a, b *Replica) bool {
	return a.Domain == b.Domain && a.Expert == b.Expert && slices.EqualFunc(a.Shards, b.Shards, func(x, y Shard) bool {
		return x.Host == y.Host && slices.Equal(x.GPUs, y.GPUs)
	})
}
