package fleetsim

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/api/control"
	"millrace/cmd/millrace/trial"
	"millrace/internal/ids"
)

// load is clients that ask all the time and never ask again: what is lost, is lost.
type load struct {
	s      *sim
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	whole   []trial.Answer
	cut     []trial.Answer // mid-stream, with an error event
	refused int            // of a model whose only unit is down
	lost    []string
	slowest time.Duration // of a whole answer
}

// Clients' habits.
const (
	clientsEach = 2 // per model
	answer      = 12
	clientPause = 60 * time.Millisecond
)

func (s *sim) load(t *testing.T) *load {
	l := &load{s: s}
	l.begin(t)
	t.Cleanup(l.rest)
	return l
}

func (l *load) begin(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	l.cancel = cancel
	for _, model := range []string{whole, pair, racks} {
		for range clientsEach {
			l.wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					begun := time.Now()
					l.take(model, trial.Chat(context.Background(), l.s.gateway.URL, l.s.secret, trial.Ask{Model: model, Prompt: fmt.Sprintf("question %d", i), MaxTokens: answer, Stream: true}), time.Since(begun))
					time.Sleep(clientPause)
				}
			})
		}
	}
}

// rest lets what runs end, and asks no more.
func (l *load) rest() {
	l.cancel()
	l.wg.Wait()
}

// take judges an answer. Of the racks there is one unit only: while it is down, clients are told so before anything streams.
func (l *load) take(model string, got trial.Answer, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := got.Err != nil && strings.Contains(got.Err.Error(), "the stream says")
	switch {
	case got.Whole:
		l.whole = append(l.whole, got)
		l.slowest = max(l.slowest, took)
	case got.Status == http.StatusOK && got.Ended && told:
		l.cut = append(l.cut, got)
	case model == racks && (got.Status == http.StatusServiceUnavailable || got.Status == http.StatusTooManyRequests) && got.Header.Get("Retry-After") != "":
		l.refused++
	default:
		l.lost = append(l.lost, fmt.Sprintf("%s %s after %v: %s: %d %v %s", time.Now().Format("15:04:05"), model, took.Round(time.Millisecond), ids.Format(ids.Request, got.Request), got.Status, got.Err, got.Text))
	}
}

// judge wants nothing lost until now.
func (l *load) judge(t *testing.T, after string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%s: %d whole answers, the slowest %v; %d cut in the stream; %d refused while the only unit was down", after, len(l.whole), l.slowest.Round(time.Millisecond), len(l.cut), l.refused)
	l.slowest = 0
	if len(l.lost) > 0 {
		t.Fatalf("%s: %d requests lost that had not begun to stream:\n%s", after, len(l.lost), strings.Join(l.lost[:min(len(l.lost), 10)], "\n"))
	}
}

// booksChecked bounds how many answers are looked up one by one.
const booksChecked = 300

// books compares what clients were told with what was billed, and reconciles everything.
func (l *load) books(t *testing.T) {
	t.Helper()
	bill := func(got trial.Answer) (r control.Request) {
		within(t, startLimit, "a request is rated", func() string {
			if err := l.s.get("/orgs/"+l.s.org+"/requests/"+ids.Format(ids.Request, got.Request), &r); err != nil {
				return err.Error()
			}
			return ""
		})
		return r
	}
	step := max(1, len(l.whole)/booksChecked)
	for i := 0; i < len(l.whole); i += step {
		got := l.whole[i]
		if r := bill(got); got.Usage == nil || r.Ending != "complete" || r.Tokens.Output != got.Usage.Completion || r.Tokens.Input+r.Tokens.Cached != got.Usage.Prompt {
			t.Errorf("%s: billed %+v (%s), the client was told %+v", r.ID, r.Tokens, r.Ending, got.Usage)
		}
	}
	for _, got := range l.cut {
		if r := bill(got); r.Ending == "complete" {
			t.Errorf("%s was cut and is billed as whole", r.ID)
		}
	}
	within(t, startLimit, "reconcile is clean", func() string {
		if said, err := l.s.command("reconcile"); err != nil {
			return said
		}
		return ""
	})
}
