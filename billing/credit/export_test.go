package credit

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
