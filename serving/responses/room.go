package responses

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// MaxOrgBytes is how much an organization may keep. What was let in below it is kept to its end, whatever it comes to.
const MaxOrgBytes = 10 << 30

const (
	nearBytes  = 64 << 20      // below the limit from which on it is asked first whether there is room
	answerRoom = 1 << 20       // bytes that there must be room for besides a request's input
	rowBytes   = 256           // that a response, a conversation or an item counts besides what it says
	unlimited  = math.MaxInt64 // what was let in, and what gets less
	roomTime   = time.Second   // for the question whether there is room again
)

// write runs fn in a transaction that sees an organization only, and counts last by how many bytes it changed what is kept of
// it, at most up to a limit.
func (s *Service) write(ctx context.Context, org ids.ID, most int64, fn func(rows *q.Queries) (more int64, err error)) error {
	var all int64 // 0 = nothing changed
	err := s.o.DB.InTx(ctx, db.Org(org), func(tx pgx.Tx) error {
		rows := q.New(tx)
		more, err := fn(rows)
		if err != nil || more == 0 {
			return err
		}
		all, err = rows.KeptAdd(ctx, q.KeptAddParams{OrgID: org, More: more, Most: most})
		if errors.Is(err, pgx.ErrNoRows) {
			all = MaxOrgBytes // or nearly
			return noRoom()
		}
		return err
	})
	if all != 0 {
		s.setNear(org, all)
	}
	return err
}

func noRoom() error {
	return fault.New(fault.Invalid, "Your organization keeps as much of responses and conversations as it may, %d GiB. Delete some that you do not need, or send "+
		"store: false; the oldest end after %d days.", MaxOrgBytes>>30, Retention/(24*time.Hour)).WithCode("storage_limit_exceeded")
}

// setNear remembers whether an organization is near its limit.
func (s *Service) setNear(org ids.ID, all int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all > MaxOrgBytes-nearBytes {
		s.near[org] = true
	} else {
		delete(s.near, org)
	}
}

// room sees that a response can be kept, before it is made. Where it cannot and nobody asked for it in so many words, it is
// made all the same, and told not to be stored. The database is asked only about who is near the limit; when it is away, there
// may be room.
func (s *Service) room(ctx context.Context, c *Call) error {
	s.mu.Lock()
	near := s.near[c.Caller.Org]
	s.mu.Unlock()
	req := c.Request
	if !near || !req.Store && req.Conversation == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomTime)
	defer cancel()
	var all int64
	err := s.read(ctx, c.Caller.Org, func(rows *q.Queries) (err error) {
		all, err = rows.KeptBytes(ctx, c.Caller.Org)
		return err
	})
	if err != nil {
		return nil // what cannot be stored in the end says so
	}
	s.setNear(c.Caller.Org, all)
	switch {
	case all+int64(len(req.Input))+answerRoom <= MaxOrgBytes:
	case req.StoreSaid || req.Background || req.Previous != "" || req.Conversation != "":
		return noRoom()
	default:
		req.Store = false
		req.Ignored = append(req.Ignored, "store (storage_limit_exceeded)")
	}
	return nil
}

// countFreed counts what was deleted of many organizations, always in the same order: two who do it never wait for each other.
func countFreed(ctx context.Context, rows *q.Queries, freed map[ids.ID]int64) error {
	orgs := make([]ids.ID, 0, len(freed))
	for org, n := range freed {
		if n != 0 {
			orgs = append(orgs, org)
		}
	}
	slices.SortFunc(orgs, func(a, b ids.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, org := range orgs {
		if _, err := rows.KeptAdd(ctx, q.KeptAddParams{OrgID: org, More: -freed[org], Most: unlimited}); err != nil {
			return err
		}
	}
	return nil
}
