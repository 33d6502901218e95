package fleet

import "context"

// repair is in the making.
func (e *Executor) repair(ctx context.Context, w *world) error { return nil }
