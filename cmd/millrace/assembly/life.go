package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// life owns background work and the order of ending: what was started last ends first.
type life struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan error // the first failure of something that must not end

	mu   sync.Mutex
	ends []end
}

type end struct {
	name string
	fn   func(ctx context.Context) error
}

func newLife() *life {
	ctx, cancel := context.WithCancel(context.Background())
	return &life{ctx: ctx, cancel: cancel, failed: make(chan error, 1)}
}

// run keeps fn running until the life ends. Its ending early is a failure of the whole server.
func (l *life) run(name string, fn func(ctx context.Context) error) {
	l.wg.Go(func() {
		err := fn(l.ctx)
		if l.ctx.Err() != nil {
			return
		}
		l.fail(fmt.Errorf("%s ended: %w", name, errors.Join(err, context.Canceled)))
	})
}

func (l *life) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

// onEnd adds a step of the ending.
func (l *life) onEnd(name string, fn func(ctx context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, end{name, fn})
}

// end runs the steps, newest first, and waits for the background work. A failing step does not stop the others.
func (l *life) end(ctx context.Context) error {
	l.mu.Lock()
	steps := l.ends
	l.ends = nil
	l.mu.Unlock()
	var errs []error
	for i := len(steps) - 1; i >= 0; i-- {
		slog.Debug("stopping", "step", steps[i].name)
		if err := steps[i].fn(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", steps[i].name, err))
		}
	}
	l.cancel()
	l.wg.Wait()
	return errors.Join(errs...)
}
