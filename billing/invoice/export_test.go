package invoice

import (
	"context"
	"time"

	"millrace/db/q"
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

var (
	Document     = document
	NoteDocument = noteDocument
)
