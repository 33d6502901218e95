package credit

import "millrace/internal/money"

// Crash ends the process's work as a kill would: nothing is returned, no goodbye, the lock is free.
func (a *Allotments) Crash() {
	a.closing.Store(true)
	for _, stop := range a.unhear {
		stop()
	}
	a.halt()
	for _, lock := range append(a.past, a.epoch.Load().lock) {
		lock.Close()
	}
}

// LockName is the path of the current epoch's lock file.
func (a *Allotments) LockName() string { return a.epoch.Load().lock.Name() }

// LeastFree is what the emptiest pot has: never below zero.
func (a *Allotments) LeastFree() (least money.Nano) {
	a.epoch.Load().each(func(w *wallet) {
		for _, p := range w.pots {
			least = min(least, p.free(), p.held, p.charged, p.returning)
		}
	})
	return least
}

// Pots counts what is remembered.
func (a *Allotments) Pots() (n int) {
	a.epoch.Load().each(func(w *wallet) { n += len(w.pots) })
	return n
}
