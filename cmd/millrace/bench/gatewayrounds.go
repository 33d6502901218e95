package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"millrace/serving/bench"
)

// kind is what an answer is like.
type kind struct {
	name   string
	tokens int
	stream bool
	rate   float64 // of the latency measurement
}

// Whole answers are short, as those of classifiers and tools are: what a gateway costs shows. Streams have a chunk per
// token.
var kinds = []kind{{name: "whole", tokens: 8, rate: wholeRate}, {name: "streamed", tokens: 100, stream: true, rate: streamedRate}}

// prompt is about as long as a chat's first message.
var prompt = strings.Repeat("word ", 60)

func (k kind) request(p *part) []byte {
	key := "none"
	if p.rated != nil {
		key = p.rated.APIKey
	}
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}],"max_tokens":%d,"stream":%t}`, p.model, prompt, k.tokens, k.stream)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		p.address, key, len(body), body)
}

// measurer takes the figures of one run.
type measurer struct {
	plan
	stand    *stand
	progress io.Writer
	report   *GatewayReport
}

func (m *measurer) all(ctx context.Context) error {
	for _, k := range kinds {
		for _, n := range m.connections {
			fmt.Fprintf(m.progress, "saturation: %s answers, %d connections\n", k.name, n)
			if err := m.saturation(ctx, k, n); err != nil {
				return err
			}
		}
	}
	for _, k := range kinds {
		fmt.Fprintf(m.progress, "latency: %s answers at %g requests/s\n", k.name, k.rate)
		if err := m.latency(ctx, k); err != nil {
			return err
		}
	}
	if m.profile != "" {
		if err := m.profiles(ctx); err != nil {
			return err
		}
	}
	m.books(ctx)
	return nil
}

// turn is one part's turn in a round.
type turn struct {
	bench.Result
	cpu     cpuUse
	catchUp time.Duration // after the turn, until all of it was in the ledger
}

// turn loads one part. Its CPU time includes what it does afterwards for the same requests.
func (m *measurer) turn(ctx context.Context, p *part, k kind, connections int, rate float64, length time.Duration) (t turn, err error) {
	before := cpuOf(p.pids...)
	t.Result, err = bench.Run(ctx, bench.Load{Address: p.address, Request: k.request(p), Connections: connections, Duration: length, Rate: rate})
	if err != nil {
		return t, err
	}
	if t.Errors > 0 {
		return t, fmt.Errorf("%s, %s answers: %d of %d requests failed: %s", p.name, k.name, t.Errors, t.Errors+t.Requests, strings.Join(t.Failures, "; "))
	}
	if t.Requests == 0 {
		return t, fmt.Errorf("%s, %s answers: none within %s", p.name, k.name, length)
	}
	if p.rated != nil {
		p.rated.sent += t.Requests
		if t.catchUp, err = p.rated.settle(ctx); err != nil {
			return t, err
		}
	}
	t.cpu = cpuOf(p.pids...).sub(before)
	return t, nil
}

// rounds gives each part its turn, again and again, so that whatever else the machine does meets all of them alike.
func (m *measurer) rounds(ctx context.Context, k kind, connections int, rate float64) (map[*part][]turn, error) {
	turns := map[*part][]turn{}
	for _, p := range m.stand.parts {
		if _, err := m.turn(ctx, p, k, connections, rate, m.warmup); err != nil {
			return nil, err
		}
	}
	for range m.plan.rounds {
		for _, p := range m.stand.parts {
			t, err := m.turn(ctx, p, k, connections, rate, m.round)
			if err != nil {
				return nil, err
			}
			turns[p] = append(turns[p], t)
		}
	}
	return turns, nil
}

func (m *measurer) saturation(ctx context.Context, k kind, connections int) error {
	turns, err := m.rounds(ctx, k, connections, 0)
	if err != nil {
		return err
	}
	for _, p := range m.stand.parts {
		s := Saturation{Way: p.name, Answers: k.name, Connections: connections}
		var cpu cpuUse
		requests := 0
		for _, t := range turns[p] {
			s.PerSecond = append(s.PerSecond, t.PerSecond)
			s.CatchUpMS = append(s.CatchUpMS, float64(t.catchUp.Microseconds())/1000)
			cpu = cpu.add(t.cpu)
			requests += t.Requests
		}
		s.Median = median(s.PerSecond)
		s.CPU = perRequest(cpu, requests)
		m.report.Saturation = append(m.report.Saturation, s)
	}
	return nil
}

func (m *measurer) latency(ctx context.Context, k kind) error {
	turns, err := m.rounds(ctx, k, rateConnections, k.rate)
	if err != nil {
		return err
	}
	plain := m.stand.parts[0]
	base := pool(turns[plain])
	for _, p := range m.stand.parts {
		all := pool(turns[p])
		l := Latency{Way: p.name, Answers: k.name, Rate: k.rate, Requests: all.Requests, P50: micros(all.P50), P99: micros(all.P99),
			FirstP50: micros(all.FirstP50), FirstP99: micros(all.FirstP99)}
		if p != plain {
			var added, first []float64
			for i, t := range turns[p] {
				added = append(added, micros(t.P50-turns[plain][i].P50))
				first = append(first, micros(t.FirstP50-turns[plain][i].FirstP50))
			}
			l.Added = &Added{P50: median(added), FirstP50: median(first), P99: micros(all.P99 - base.P99), FirstP99: micros(all.FirstP99 - base.FirstP99)}
		}
		m.report.Latency = append(m.report.Latency, l)
	}
	return nil
}

func pool(turns []turn) bench.Result {
	runs := make([]bench.Result, len(turns))
	for i, t := range turns {
		runs[i] = t.Result
	}
	return bench.Pool(runs)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// profiles takes CPU profiles of Millrace at saturation, apart from the figures: profiling costs.
func (m *measurer) profiles(ctx context.Context) error {
	for _, p := range m.stand.parts {
		for _, k := range kinds {
			if p.rated == nil {
				continue
			}
			fmt.Fprintf(m.progress, "profile: %s, %s answers\n", p.name, k.name)
			var (
				wg     sync.WaitGroup
				failed error
			)
			name := strings.ReplaceAll(p.name, ", ", "-") + "-" + k.name + ".pprof"
			wg.Go(func() { failed = p.rated.profile(ctx, m.profiling, m.profile, name) })
			_, err := m.turn(ctx, p, k, m.connections[0], 0, m.profiling)
			wg.Wait()
			if err := errors.Join(err, failed); err != nil {
				return err
			}
		}
	}
	return nil
}

// books compares what was sent with what Millrace's ledger holds. Figures are worth showing even when that fails.
func (m *measurer) books(ctx context.Context) {
	mr := m.stand.millrace
	m.report.Books.Sent = mr.sent
	var err error
	if m.report.Books.Booked, m.report.Books.Failed, err = mr.booked(ctx); err != nil {
		m.report.Books.Problem = err.Error()
	}
}
