package engines

import (
	"os/exec"
	"runtime"
	"sync"
)

// forker starts processes from one thread that lives as long as the supervisor: Linux sends a child its parent-death
// signal when the thread that forked it ends, not the process.
type forker struct {
	requests chan fork
	done     sync.WaitGroup
}

type fork struct {
	cmd    *exec.Cmd
	result chan error
}

func newForker() *forker {
	f := &forker{requests: make(chan fork)}
	f.done.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for r := range f.requests {
			r.result <- r.cmd.Start()
		}
	})
	return f
}

func (f *forker) start(cmd *exec.Cmd) error {
	r := fork{cmd, make(chan error, 1)}
	f.requests <- r
	return <-r.result
}

// close ends the thread. Every child must have ended before.
func (f *forker) close() {
	close(f.requests)
	f.done.Wait()
}
