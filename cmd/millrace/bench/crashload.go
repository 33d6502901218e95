package bench

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/cmd/millrace/trial"
	"millrace/serving/engine/tok"
)

// The load of a crash run.
const (
	crashClients  = 16
	crashTopics   = 8                     // beginnings that many prompts share
	crashPause    = 20 * time.Millisecond // of a client that finds nobody
	crashAskLimit = 60 * time.Second
)

// crashLoad is many clients that ask, without a pause, whoever serves.
type crashLoad struct {
	book  *book
	key   string
	model string
	// targets are the addresses of the gateways that serve now.
	targets atomic.Pointer[[]string]

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// aim says who serves; nobody when it is empty.
func (l *crashLoad) aim(urls ...string) { l.targets.Store(&urls) }

// start lets the clients begin. pause ends them.
func (l *crashLoad) start(seed uint64) {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for i := range crashClients {
		l.wg.Go(func() { l.client(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
}

// pause waits until every client has had its answer, or has been cut off by a kill.
func (l *crashLoad) pause() {
	l.stop()
	l.wg.Wait()
}

func (l *crashLoad) client(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		urls := l.targets.Load()
		if urls == nil || len(*urls) == 0 {
			time.Sleep(crashPause)
			continue
		}
		t := &told{ask: randomAsk(r, l.model)}
		prompt, err := tok.ApplyChat(t.ask.Body())
		if err != nil {
			panic(err) // we wrote it
		}
		t.prompt = int64(len(prompt))
		// The request outlives ctx: its answer is part of the story, and a kill or its own end bounds it.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), crashAskLimit)
		t.got = trial.Chat(call, (*urls)[r.IntN(len(*urls))], l.key, t.ask)
		cancel()
		if t.got.Status == 0 && t.got.Err != nil && isRefused(t.got.Err) {
			time.Sleep(crashPause)
			continue // it reached nobody
		}
		l.book.add(t)
		if t.got.Status != http.StatusOK {
			time.Sleep(crashPause)
		}
	}
}

func isRefused(err error) bool { return strings.Contains(err.Error(), "connection refused") }

// randomAsk mixes what customers do: short and long answers, streamed and whole, prompts that begin alike, and clients
// that leave.
func randomAsk(r *rand.Rand, model string) trial.Ask {
	a := trial.Ask{Model: model, Prompt: randomPrompt(r), Stream: r.IntN(5) > 0}
	switch n := r.IntN(10); {
	case n < 4:
		a.MaxTokens = 1 + r.IntN(30)
	case n < 8 || !a.Stream:
		a.MaxTokens = 30 + r.IntN(200)
	default:
		a.MaxTokens = 500 + r.IntN(4000)
	}
	switch r.IntN(8) {
	case 0:
		a.Leave = trial.HalfClose
	case 1:
		a.Leave = trial.Close
	default:
		return a
	}
	if a.LeaveTokens = int64(1 + r.IntN(a.MaxTokens)); !a.Stream || r.IntN(4) == 0 {
		a.LeaveAfter = time.Duration(1+r.IntN(300)) * time.Millisecond
	}
	return a
}

// randomPrompt begins with one of a few topics, of very different lengths, and ends in its own way.
func randomPrompt(r *rand.Rand) string {
	topic := r.IntN(crashTopics)
	words := strings.Repeat("topic "+strconv.Itoa(topic)+" goes on and on, ", 1<<topic)
	return words + "and asks " + strconv.FormatUint(r.Uint64(), 36)
}
