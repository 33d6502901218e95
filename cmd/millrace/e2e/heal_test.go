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

// steady asks without a pause until stop, and gives all answers.
func steady(ctx context.Context, c *customer) (stop func() []asked) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all []asked
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				at := time.Now()
				got := c.chat(trial.Ask{Prompt: "are you there?", MaxTokens: 20, Stream: true})
				mu.Lock()
				all = append(all, asked{at, got})
				mu.Unlock()
			}
		})
	}
	return func() []asked {
		cancel()
		wg.Wait()
		return all
	}
}

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
		stop := steady(t.Context(), mine)
		time.Sleep(300 * time.Millisecond) // the load is under way
		killed := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		within(t, routerNotices, "the router stops sending to a dead "+victim, func() bool { return eligible(mine, t) == 1 })
		within(t, healLimit, "a dead "+victim+" heals", func() bool { return eligible(mine, t) == 2 })
		healed := time.Now()
		eventually(t, "it serves again", func() bool { return time.Since(healed) > 500*time.Millisecond })
		answers := stop()
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
