package e2e

import (
	"context"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/api/control"
	"millrace/cmd/millrace/trial"
)

func units(c *customer, t testing.TB) []control.Unit {
	t.Helper()
	var page control.Page[control.Unit]
	c.call(t, http.MethodGet, "/units", nil, &page)
	return page.Data
}

func eligible(c *customer, t testing.TB) (n int) {
	t.Helper()
	for _, u := range units(c, t) {
		if u.Eligible {
			n++
		}
	}
	return n
}

// What must hold when an engine or an agent dies.
const (
	routerNotices = time.Second // until nothing more is sent there
	healLimit     = soon
)

// asked is one request of a steady load.
type asked struct {
	at  time.Time
	got trial.Answer
}

// load is requests without a pause, and their answers.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	all    []asked
}

// steady asks without a pause until stop.
func steady(ctx context.Context, c *customer) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel}
	for range 4 {
		l.wg.Go(func() {
			for ctx.Err() == nil {
				at := time.Now()
				got := c.chat(trial.Ask{Prompt: "are you there?", MaxTokens: 20, Stream: true})
				l.mu.Lock()
				l.all = append(l.all, asked{at, got})
				l.mu.Unlock()
			}
		})
	}
	return l
}

// whole is how many answers came whole so far.
func (l *load) whole() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.all {
		if a.got.Whole {
			n++
		}
	}
	return n
}

// stop ends the load and gives all answers.
func (l *load) stop() []asked {
	l.cancel()
	l.wg.Wait()
	return l.all
}

// enough are answers that show that a load is well under way.
const enough = 40

func TestKilledEngineAndAgentHeal(t *testing.T) {
	u := startUp(t, config(folder(t)))
	mine := newCustomer(t, u, "5")
	for _, victim := range []string{"engine", "agent"} {
		eventually(t, "both replicas serve", func() bool { return eligible(mine, t) == 2 })
		h := householdOf(t, u)
		pid := h.engines[0]
		if victim == "agent" {
			pid = h.agents[0]
		}
		load := steady(t.Context(), mine)
		eventually(t, "the load is under way", func() bool { return load.whole() >= enough })
		killed := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		within(t, routerNotices, "the router stops sending to a dead "+victim, func() bool { return eligible(mine, t) == 1 })
		within(t, healLimit, "a dead "+victim+" heals", func() bool { return eligible(mine, t) == 2 })
		healed, before := time.Now(), load.whole()
		eventually(t, "it serves again", func() bool { return load.whole() >= before+enough })
		answers := load.stop()
		broken := 0
		for _, a := range answers {
			if a.got.Whole {
				continue
			}
			broken++
			if a.at.After(killed) {
				t.Errorf("%s: a request that came %v after the kill failed: %d %v %s", victim, a.at.Sub(killed), a.got.Status, a.got.Err, a.got.Text)
			}
		}
		t.Logf("%s: %d of %d requests were broken, healed after %v", victim, broken, len(answers), healed.Sub(killed).Round(time.Millisecond))
	}
}
