package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/cmd/millrace/trial"
)

// A repeated prefix lands where it is cached, whichever of the replicas that is, and the answer shows it. Another
// customer's prompt finds nothing, though it is the same.
func TestARepeatedPrefixIsFoundWhereItIs(t *testing.T) {
	u := sharedUp(t)
	mine := newCustomer(t, u, "5")
	const prefixes = 24
	prefix := func(i int) string {
		return strings.Repeat(fmt.Sprintf("chapter %d of a long story that everybody asks about, ", i), 40)
	}
	ask := func(c *customer, i int, tail string) trial.Answer {
		return c.must(t, trial.Ask{Prompt: prefix(i) + tail, MaxTokens: 4})
	}
	known := quiet(t, u, "millrace_route_prefix_blocks") // what earlier tests left on its way would count as ours
	first := make([]trial.Answer, prefixes)
	var wg sync.WaitGroup
	for i := range first { // at once, so that both replicas get work
		wg.Go(func() {
			first[i] = mine.chat(trial.Ask{Model: mine.model, Prompt: prefix(i) + "what happens?", MaxTokens: 4})
		})
	}
	wg.Wait()
	used := map[string]int{}
	for i, got := range first {
		if !got.Whole || got.Usage.Details.Cached > got.Usage.Prompt/4 {
			t.Fatalf("prefix %d: %+v, %v", i, got.Usage, got.Err)
		}
		used[mine.bill(t, got.Request).Attempts[0].UnitID]++
	}
	if len(used) != 2 {
		t.Fatalf("the first askings went to %v: both replicas should have got some", used)
	}
	blocks := 0
	for _, got := range first { // an answer's last token is in no cache
		blocks += int(got.Usage.Prompt+got.Usage.Completion-1) / blockTokens
	}
	eventually(t, "the router has heard of the caches", func() bool { return metric(t, u, "millrace_route_prefix_blocks") >= known+blocks })
	eventually(t, "the router has heard that the engines have nothing to do", func() bool { // else another one may be faster
		for _, u := range units(mine, t) {
			if u.Running+u.Waiting > 0 {
				return false
			}
		}
		return true
	})
	missed := 0
	for i := range prefixes {
		got := ask(mine, i, "and who did it?")
		if cached := got.Usage.Details.Cached; cached < got.Usage.Prompt*9/10 {
			missed++
			t.Logf("prefix %d: %d of %d tokens were cached", i, cached, got.Usage.Prompt)
		}
		bill := mine.bill(t, got.Request)
		agrees(t, got, bill)
		if cold := first[i].Usage; bill.Charged.Nano*2 > mine.bill(t, first[i].Request).Charged.Nano {
			t.Errorf("prefix %d costs %s cached, %d tokens uncached cost hardly more", i, bill.Charged.USD, cold.Prompt)
		}
	}
	if missed > 0 {
		t.Errorf("%d of %d repeated prefixes went where they are not cached", missed, prefixes)
	}
	other := newCustomer(t, u, "5")
	for i := range prefixes {
		if got := ask(other, i, "and who did it?"); got.Usage.Details.Cached != 0 {
			t.Errorf("another customer hits %d tokens of prefix %d", got.Usage.Details.Cached, i)
		}
	}
}

// blockTokens is the size of a block of the simulated engine's cache.
const blockTokens = 16

// metric reads a metric that is a whole number.
func metric(t testing.TB, u *trial.Up, name string) int {
	t.Helper()
	_, text := get(t, u.Ready.MetricsURL, "")
	_, after, found := strings.Cut("\n"+text, "\n"+name+" ")
	value, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseFloat(value, 64)
	if !found || err != nil {
		t.Fatalf("metric %s: %q, %v", name, value, err)
	}
	return int(n)
}

// quiet is a metric's value once nothing has moved it for a while: nobody is asking, and news travel in milliseconds.
func quiet(t testing.TB, u *trial.Up, name string) int {
	t.Helper()
	const while = time.Second
	last, since := metric(t, u, name), time.Now()
	eventually(t, name+" is quiet", func() bool {
		if now := metric(t, u, name); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= while
	})
	return last
}

// A prompt that grows turn by turn stays where it began.
func TestAConversationStaysWhereItIsCached(t *testing.T) {
	mine := newCustomer(t, sharedUp(t), "5")
	prompt := strings.Repeat("we talked about this and that, ", 30)
	unit := ""
	for turn := range 6 {
		got := mine.must(t, trial.Ask{Prompt: prompt, MaxTokens: 4})
		bill := mine.bill(t, got.Request)
		if at := bill.Attempts[0].UnitID; unit != "" && at != unit {
			t.Errorf("turn %d went from %s to %s", turn, unit, at)
		} else {
			unit = at
		}
		if turn > 0 && got.Usage.Details.Cached*2 < got.Usage.Prompt {
			t.Errorf("turn %d: %d of %d tokens were cached", turn, got.Usage.Details.Cached, got.Usage.Prompt)
		}
		prompt += fmt.Sprintf("and then in turn %d about something else, ", turn)
	}
}

// The list of models is what can be called.
func TestModels(t *testing.T) {
	u := sharedUp(t)
	mine := newCustomer(t, u, "1")
	status, body := get(t, u.Ready.URL+"/v1/models/"+mine.model, mine.secret)
	if status != http.StatusOK || !strings.Contains(body, mine.model) {
		t.Errorf("%d %s", status, body)
	}
}
