package inbox

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Dispatch makes one Handler of several: an event goes to everyone who knows its type, since a refund may be of a top-up or of
// an invoice. Their effects are one: all or none.
func Dispatch(handlers ...Handler) Handler { return dispatch(handlers) }

type dispatch []Handler

// Knows is Handler's.
func (d dispatch) Knows(eventType string) bool {
	for _, h := range d {
		if h.Knows(eventType) {
			return true
		}
	}
	return false
}

// Handle is Handler's.
func (d dispatch) Handle(ctx context.Context, e Event) (Effect, error) {
	var effects []Effect
	for _, h := range d {
		if !h.Knows(e.Type) {
			continue
		}
		x, err := h.Handle(ctx, e)
		if err != nil {
			return Effect{}, err
		}
		effects = append(effects, x)
	}
	return Effect{
		Apply: func(ctx context.Context, tx pgx.Tx) error {
			for _, x := range effects {
				if x.Apply != nil {
					if err := x.Apply(ctx, tx); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Done: func(ctx context.Context) {
			for _, x := range effects {
				if x.Done != nil {
					x.Done(ctx)
				}
			}
		},
	}, nil
}
