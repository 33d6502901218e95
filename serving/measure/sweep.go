package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/serving/recipe"
)

// Limits of a sweep.
const (
	MaxBatch   = 1024
	shortest   = 128 // prompt tokens
	longerBy   = 4
	repeats    = 3
	stepTokens = 96   // of each answer of a batch; doubled when the first answers end before the last begin
	mostTokens = 1536 // and no more than so often
)

// Plan is what a sweep tries.
type Plan struct {
	MaxPrompt int // tokens
	MaxBatch  int // requests at once
}

// Sweep is what a sweep measured.
type Sweep struct {
	Prefill []recipe.PrefillSample
	Decode  []recipe.DecodeSample
	Prompt  float64 // tokens/s of the longest prompt alone
	Output  float64 // tokens/s of the largest batch
	Errors  []string
}

// prompts makes texts of about so many tokens, of which no two begin alike.
type prompts struct {
	random *rand.Rand
	ratio  float64 // tokens of a word, as learnt from the last answer
}

func (t *Target) newPrompts(seed uint64) *prompts {
	p := &prompts{random: rand.New(rand.NewPCG(seed, 1)), ratio: t.ratio}
	if p.ratio == 0 {
		p.ratio = 1
	}
	return p
}

func (p *prompts) text(tokens int) string {
	var b strings.Builder
	for range max(int(float64(tokens)/p.ratio), 1) {
		b.WriteString(strconv.FormatUint(uint64(p.random.Uint32()%9000)+1000, 10))
		b.WriteByte(' ')
	}
	return b.String()
}

// learn corrects the words of a token by what a prompt came to.
func (p *prompts) learn(text string, tokens int64) {
	if words := strings.Count(text, " "); words > 0 && tokens > 0 {
		p.ratio = float64(tokens) / float64(words)
	}
}

// Run makes the sweep, telling of its progress. What single answers fail with is in Errors; when nothing works, that is the
// error.
func (t *Target) Run(ctx context.Context, plan Plan, seed uint64, progress io.Writer) (*Sweep, error) {
	if plan.MaxPrompt < shortest*longerBy || plan.MaxBatch < 2 || plan.MaxBatch > MaxBatch {
		return nil, fmt.Errorf("measure: want prompts of at least %d tokens and batches of 2 to %d", shortest*longerBy, MaxBatch)
	}
	s, p := &Sweep{}, t.newPrompts(seed)
	first := p.text(shortest)
	a, err := t.ask(ctx, first, 2) // also warms what the engine compiles at its first request
	if err != nil {
		return nil, fmt.Errorf("measure: the endpoint does not answer: %w", err)
	}
	p.learn(first, a.Prompt)
	t.ratio = p.ratio
	if err := t.prefills(ctx, s, p, plan, progress); err != nil {
		return s, err
	}
	return s, t.decodes(ctx, s, p, plan, progress)
}

func (t *Target) prefills(ctx context.Context, s *Sweep, p *prompts, plan Plan, progress io.Writer) error {
	for n := shortest; n <= plan.MaxPrompt; n *= longerBy {
		for range repeats {
			text := p.text(n)
			a, err := t.ask(ctx, text, 2)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				s.fail(err)
				continue
			}
			p.learn(text, a.Prompt)
			t.ratio = p.ratio
			if fresh := a.Prompt - a.Cached; fresh > 0 {
				s.Prefill = append(s.Prefill, recipe.PrefillSample{Tokens: float64(fresh), Took: micros(a.First)})
				s.Prompt = max(s.Prompt, float64(fresh)/a.First.Seconds())
			}
		}
		fmt.Fprintf(progress, "prefill of %d tokens: done\n", n)
	}
	return nil
}

func (t *Target) decodes(ctx context.Context, s *Sweep, p *prompts, plan Plan, progress io.Writer) error {
	for n := 1; n <= plan.MaxBatch; n *= 2 {
		for _, prompt := range []int{shortest, shortest * longerBy, shortest * longerBy * longerBy * longerBy} {
			if prompt > plan.MaxPrompt {
				continue
			}
			if err := t.decode(ctx, s, p, n, prompt); err != nil {
				return err
			}
		}
		fmt.Fprintf(progress, "decode of %d at once: done\n", n)
	}
	return nil
}

// decode runs one batch, with longer answers until all of it decodes together for a while.
func (t *Target) decode(ctx context.Context, s *Sweep, p *prompts, n, prompt int) error {
	for tokens := stepTokens; tokens <= mostTokens; tokens *= 2 {
		answers, err := t.batch(ctx, p, n, prompt, tokens)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.fail(err)
			return nil
		}
		if sample, perSecond, ok := together(answers); ok {
			s.Decode = append(s.Decode, sample)
			s.Output = max(s.Output, perSecond)
			return nil
		}
	}
	return nil // the prefill of this batch takes longer than its decode: nothing to be learnt here
}

// batch sends n requests at once and waits for all.
func (t *Target) batch(ctx context.Context, p *prompts, n, prompt, tokens int) ([]Answer, error) {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = p.text(prompt)
	}
	answers, errs := make([]Answer, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i], errs[i] = t.ask(ctx, texts[i], tokens) })
	}
	wg.Wait()
	return answers, errors.Join(errs...)
}

// leastSteps is how many steps a batch must have made together to be a sample.
const leastSteps = 8

// together measures the steps of the time in which every answer of a batch was being decoded.
func together(answers []Answer) (sample recipe.DecodeSample, perSecond float64, ok bool) {
	var from, to time.Time
	for _, a := range answers {
		if len(a.at) < 2 {
			return sample, 0, false
		}
		if from.IsZero() || a.at[0].After(from) {
			from = a.at[0]
		}
		if last := a.at[len(a.at)-1]; to.IsZero() || last.Before(to) {
			to = last
		}
	}
	var tokens, cached float64
	for _, a := range answers {
		each := float64(a.Generated) / float64(len(a.at)) // tokens of an event
		before, _ := slices.BinarySearchFunc(a.at, from, later)
		within, _ := slices.BinarySearchFunc(a.at, to, later)
		within -= before
		tokens += float64(within) * each
		cached += float64(a.Prompt) + (float64(before)+float64(within)/2)*each
	}
	n := float64(len(answers))
	if took := to.Sub(from); tokens/n >= leastSteps {
		step := micros(took) * n / tokens
		return recipe.DecodeSample{Requests: n, Cached: cached, Took: step}, n * 1e6 / step, true
	}
	return sample, 0, false
}

func later(a, b time.Time) int { return a.Compare(b) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

const maxErrors = 5

func (s *Sweep) fail(err error) {
	if len(s.Errors) < maxErrors {
		s.Errors = append(s.Errors, err.Error())
	}
}
