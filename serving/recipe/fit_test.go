package recipe

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func samples(c Cost, noise func() float64) (p []PrefillSample, d []DecodeSample) {
	for _, s := range []float64{128, 512, 2048, 8192, 32768} {
		p = append(p, PrefillSample{s, (c.A0 + c.A1*s) * noise()})
	}
	for _, n := range []float64{1, 4, 16, 64} {
		for _, each := range []float64{128, 2048, 16384} {
			d = append(d, DecodeSample{n, n * each, (c.B0 + c.B1*n + c.B2*n*each) * noise()})
		}
	}
	return p, d
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b)) }

func TestAFitGivesBackWhatMadeTheSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, most float64) float64 { return rapid.Float64Range(0, most).Draw(t, name) }
		c := Cost{A0: draw("a0", 1e5), A1: draw("a1", 1e3) + 1e-3, B0: draw("b0", 1e5) + 1, B1: draw("b1", 1e3), B2: draw("b2", 1)}
		p, d := samples(c, func() float64 { return 1 })
		got, err := Fit(p, d)
		if err != nil || !near(got.A0, c.A0) || !near(got.A1, c.A1) || !near(got.B0, c.B0) || !near(got.B1, c.B1) || !near(got.B2, c.B2) || got.Error > 1e-6 {
			t.Fatalf("%+v became %+v, %v", c, got, err)
		}
	})
}

func TestNoiseIsToldAsTheError(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := Cost{A0: 30000, A1: 51.7, B0: 11200, B1: 23, B2: 0.052}
	p, d := samples(c, func() float64 { return 1 + 0.2*(random.Float64()-0.5) })
	got, err := Fit(p, d)
	if err != nil || got.Error < 0.01 || got.Error > 0.1 || math.Abs(got.A1-c.A1) > 0.15*c.A1 || math.Abs(got.B0-c.B0) > 0.15*c.B0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAFitIsNeverNegative(t *testing.T) {
	got, err := Fit([]PrefillSample{{100, 10}, {200, 40}, {400, 160}}, []DecodeSample{{1, 100, 50}, {2, 200, 40}, {4, 100, 30}, {8, 9000, 20}})
	if err != nil || min(got.A0, got.A1, got.B0, got.B1, got.B2) < 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTooFewSamples(t *testing.T) {
	p, d := samples(Cost{A0: 1, A1: 1, B0: 1, B1: 1, B2: 1}, func() float64 { return 1 })
	for name, c := range map[string]struct {
		p []PrefillSample
		d []DecodeSample
	}{
		"none": {}, "one length": {p[:1], d}, "the same length twice": {[]PrefillSample{p[0], p[0]}, d},
		"one batch": {p, d[:1]}, "two batches": {p, d[:2]}, "every context alike": {p, []DecodeSample{d[0], d[3], d[6], d[9]}},
		"no time": {[]PrefillSample{{1, 0}, {2, 0}}, d},
	} {
		if got, err := Fit(c.p, c.d); !errors.Is(err, ErrTooFew) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
