// Package update exchanges the agent's own program for the one that its release channel names, and takes it back when it
// does not work.
//
// The installed program stays where it is. A newer one lies in the agent's folder; whoever is started looks into a small
// file that says which is current, and becomes that by exec, so the process keeps its number and its engines. A program
// that is new is on trial: it must reach the hub within a time, else the one before is current again, by its own watchdog
// or, when it has died, by the next start.
//
// Invariants: a program runs only if it has the digest that the hub named over the link, and the signature of the release
// key when there is one; the file changes at once or not at all; a program that failed its trial is not tried again; one
// that an operator installs ends whatever was current.
package update

import (
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const programsDir = "programs"

// Program is the running program. It is safe for concurrent use.
type Program struct {
	dir, self string
	sum       []byte            // digest of self
	key       ed25519.PublicKey // nil = the digest alone counts
	platform  string
	log       *slog.Logger

	mu    sync.Mutex
	state state
	trial *time.Timer
}

// Config is what updates work with.
type Config struct {
	Dir      string // the agent's folder
	Key      ed25519.PublicKey
	Platform string
	Trial    time.Duration // in which a new program must reach the hub
	Log      *slog.Logger
}

// Enter is called first thing: it becomes the current program when this is another one, and then does not return. The
// folder's lock must be held, and is given up by exec.
func Enter(cfg Config) (*Program, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	p := &Program{dir: cfg.Dir, self: self, key: cfg.Key, platform: cfg.Platform, log: cfg.Log}
	if p.sum, err = sumOf(self); err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	p.load()
	if err := p.settle(); err != nil {
		return nil, err
	}
	if target := p.target(); target != self {
		cfg.Log.Info("becoming the current program", "program", target)
		if err := become(target); err != nil {
			p.back("it cannot be executed: " + err.Error())
			if p.target() != self {
				return nil, fmt.Errorf("update: %w", err)
			}
		}
	}
	if p.state.Trial {
		p.trial = time.AfterFunc(cfg.Trial, p.expire)
	}
	return p, nil
}

// settle brings the file up to date with this start.
func (p *Program) settle() error {
	s := &p.state
	inside := filepath.Dir(p.self) == p.path(programsDir)
	if !inside {
		at := modified(p.self)
		if s.Installed != p.self || !s.InstalledAt.Equal(at) {
			*s = state{Installed: p.self, InstalledAt: at} // an operator's word is the last
		}
	}
	// A program on trial is entered by exec from the one before. Whoever else comes was started after it had ended.
	switch {
	case !s.Trial || p.target() == p.self:
	case s.Fresh: // the one before ended, or the machine did, while it drained for the update: the trial begins now
		s.Fresh = false
	default:
		p.back("it ended before it had reached the hub")
	}
	return p.save()
}

// back takes the program on trial back.
func (p *Program) back(why string) {
	s := &p.state
	p.log.Error("the new program is taken back", "version", s.Version, "why", why)
	s.Error = s.Version + " was taken back: " + why
	if sum, err := sumOf(s.Current); err == nil {
		s.Failed = sum
	}
	s.Current, s.Previous, s.Version, s.Trial, s.Fresh = s.Previous, "", "", false, false
	if err := p.save(); err != nil {
		p.log.Error("which program is current cannot be kept", "error", err)
	}
}

// target is the program that is to run.
func (p *Program) target() string {
	if p.state.Current == "" {
		return p.state.Installed
	}
	return p.state.Current
}

// Confirm says that this program has reached its hub: its trial is over.
func (p *Program) Confirm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.state.Trial {
		return
	}
	p.trial.Stop()
	p.state.Trial, p.state.Error = false, ""
	if err := p.save(); err != nil {
		p.log.Error("the trial's end cannot be kept", "error", err)
	}
	p.log.Info("the new program works", "version", p.state.Version)
	p.prune()
}

// expire ends a trial that failed: this very process becomes the program before.
func (p *Program) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.state.Trial {
		return
	}
	p.back("it did not reach the hub in time")
	if err := become(p.target()); err != nil {
		p.log.Error("the program before cannot be executed", "error", err)
		os.Exit(1) // the service manager starts the installed one
	}
}

// Trouble is why the last update was taken back, "" = there was none.
func (p *Program) Trouble() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Error
}

// Switch becomes the current program. It returns only when that fails: then this one goes on as the current one.
func (p *Program) Switch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Fresh = false
	err := p.save()
	if err == nil {
		err = become(p.target())
	}
	p.back("it cannot be executed: " + err.Error())
	return err
}

// become replaces this process's program; arguments, environment and children stay.
func become(path string) error { return syscall.Exec(path, os.Args, os.Environ()) }

// prune removes programs that nothing leads back to.
func (p *Program) prune() {
	entries, err := os.ReadDir(p.path(programsDir))
	if err != nil {
		return
	}
	for _, e := range entries {
		if path := p.path(programsDir, e.Name()); path != p.state.Current && path != p.state.Previous {
			_ = os.Remove(path)
		}
	}
}
