package invoice

import (
	"context"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
)

// DatabaseAt gives a service's database another clock.
func DatabaseAt(s *Service, now func() time.Time) {
	s.database = func(context.Context, *q.Queries) (time.Time, error) { return now(), nil }
}

// FailAt makes a service fail at its nth step, counted from 0.
func FailAt(s *Service, n int, err error) {
	count := 0
	s.at = func(string) error {
		count++
		if count-1 == n {
			return err
		}
		return nil
	}
}

// BoundBy bounds what one invoice takes of a collector's turn otherwise than by its clock.
func BoundBy(c *Collector, in func(ctx context.Context) (context.Context, context.CancelFunc)) {
	c.inTime = in
}

// TakeStep takes the next step at the payment provider, as a turn does before it keeps what it knows.
func TakeStep(ctx context.Context, c *Collector, org, id ids.ID) error {
	v, err := c.look(ctx, org, id)
	if err == nil {
		_, err = c.take(ctx, v, next(v, c.s.now()))
	}
	return err
}

// ClaimFor is for how long nobody else takes an invoice that is tended.
const ClaimFor = claimFor

var (
	Document     = document
	NoteDocument = noteDocument
)
