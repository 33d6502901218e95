package measure

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Workload is a shape of requests.
type Workload struct {
	Name   string `json:"name"`
	Prompt int    `json:"prompt"` // tokens
	Shared int    `json:"shared"` // of these, the same in all requests
	Output int    `json:"output"` // tokens
}

// Workloads are what every measurement tries.
var Workloads = []Workload{
	{Name: "chat", Prompt: 512, Output: 256},
	{Name: "documents", Prompt: 8192, Output: 256},
	{Name: "agent", Prompt: 8192, Shared: 6144, Output: 256},
}

// Served is what an endpoint made of a workload.
type Served struct {
	Workload
	Clients    int           `json:"clients"`
	Requests   int           `json:"requests"`
	Failed     int           `json:"failed"`
	PerSecond  float64       `json:"requests_per_second"`
	PromptRate float64       `json:"prompt_tokens_per_second"`
	OutputRate float64       `json:"output_tokens_per_second"`
	HitShare   float64       `json:"cached_share"` // of the prompt tokens
	FirstP50   time.Duration `json:"ttft_p50_ns"`
	FirstP99   time.Duration `json:"ttft_p99_ns"`
	TokenP50   time.Duration `json:"tpot_p50_ns"`
	TokenP99   time.Duration `json:"tpot_p99_ns"`
	Error      string        `json:"error,omitempty"` // one of the failures
}

// Serve keeps a workload up with so many clients for a while, then waits for what runs: answers that began in time count.
func (t *Target) Serve(ctx context.Context, w Workload, clients int, during time.Duration, seed uint64) Served {
	shared := t.newPrompts(seed).text(w.Shared)
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		answers []Answer
		out     = Served{Workload: w, Clients: clients}
		start   = time.Now()
	)
	for i := range clients {
		wg.Go(func() {
			p := t.newPrompts(seed + 1 + uint64(i))
			for time.Since(start) < during && ctx.Err() == nil {
				text := p.text(w.Prompt - w.Shared)
				if w.Shared > 0 {
					text = shared + text
				}
				a, err := t.ask(ctx, text, w.Output)
				mu.Lock()
				if err == nil {
					answers = append(answers, a)
				} else if ctx.Err() == nil {
					out.Failed++
					out.Error = err.Error()
				}
				mu.Unlock()
				if err != nil && !pause(ctx) {
					return
				}
			}
		})
	}
	wg.Wait()
	out.sum(answers, time.Since(start))
	return out
}

// afterFailure keeps clients of a broken endpoint from asking as fast as they can, in time.
const afterFailure = 200 * time.Millisecond

func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(afterFailure):
		return true
	}
}

func (s *Served) sum(answers []Answer, took time.Duration) {
	s.Requests = len(answers)
	if s.Requests == 0 {
		return
	}
	var prompt, cached, generated int64
	var first, token []time.Duration
	for i := range answers {
		a := &answers[i]
		prompt, cached, generated = prompt+a.Prompt, cached+a.Cached, generated+a.Generated
		first, token = append(first, a.First), append(token, a.Token())
	}
	seconds := took.Seconds()
	s.PerSecond, s.PromptRate, s.OutputRate = float64(s.Requests)/seconds, float64(prompt)/seconds, float64(generated)/seconds
	if prompt > 0 {
		s.HitShare = float64(cached) / float64(prompt)
	}
	s.FirstP50, s.FirstP99 = quantiles(first)
	s.TokenP50, s.TokenP99 = quantiles(token)
}

func quantiles(d []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(d)
	return d[len(d)/2], d[len(d)*99/100]
}

// CostPerMillion is the price of a million tokens of prompt and answer together, in dollars, where so many GPUs cost so
// much an hour each.
func (s *Served) CostPerMillion(gpus int, gpuHour float64) float64 {
	if rate := s.PromptRate + s.OutputRate; rate > 0 {
		return float64(gpus) * gpuHour / 3600 / rate * 1e6
	}
	return 0
}
