package recipe

import (
	"errors"
	"math"
	"slices"
)

// PrefillSample is one measured prefill: how long the first token took after so many uncached tokens, in microseconds.
type PrefillSample struct{ Tokens, Took float64 }

// DecodeSample is one measured decode step of a batch with so many tokens in the cache in all, in microseconds.
type DecodeSample struct{ Requests, Cached, Took float64 }

// ErrTooFew says that the samples do not determine a cost model.
var ErrTooFew = errors.New("recipe: too few different samples for a fit")

// Fit finds the cost model with the least squared relative errors and no negative part. Error is the mean relative error
// over all samples. From is left to the caller.
func Fit(prefill []PrefillSample, decode []DecodeSample) (Cost, error) {
	p, d := make([]row, len(prefill)), make([]row, len(decode))
	for i, s := range prefill {
		p[i] = row{x: []float64{1, s.Tokens}, y: s.Took}
	}
	for i, s := range decode {
		d[i] = row{x: []float64{1, s.Requests, s.Cached}, y: s.Took}
	}
	a, err := leastSquares(p)
	if err != nil {
		return Cost{}, err
	}
	b, err := leastSquares(d)
	if err != nil {
		return Cost{}, err
	}
	c := Cost{A0: a[0], A1: a[1], B0: b[0], B1: b[1], B2: b[2]}
	c.Error = (meanError(p, a)*float64(len(p)) + meanError(d, b)*float64(len(d))) / float64(len(p)+len(d))
	return c, nil
}

// row is one equation: the sum of x times the unknowns is y.
type row struct {
	x []float64
	y float64
}

// leastSquares solves for unknowns that are not negative. There are three at most, so every choice of those that may differ
// from zero is tried.
func leastSquares(rows []row) ([]float64, error) {
	if len(rows) == 0 {
		return nil, ErrTooFew
	}
	n := len(rows[0].x)
	var best []float64
	least := math.Inf(1)
	for free := 1; free < 1<<n; free++ {
		k, ok := solve(rows, free)
		if !ok && free == 1<<n-1 {
			return nil, ErrTooFew
		}
		if !ok || slices.Min(k) < 0 {
			continue
		}
		if sum := residual(rows, k); sum < least {
			least, best = sum, k
		}
	}
	if best == nil {
		return nil, ErrTooFew
	}
	return best, nil
}

// solve finds the unknowns of which the bit is set, by the normal equations of the rows divided by what they came to, so
// that a long prefill counts as much as a short step. not ok: there is no single solution.
func solve(rows []row, free int) (k []float64, ok bool) {
	n := len(rows[0].x)
	var at []int
	for i := range n {
		if free&(1<<i) != 0 {
			at = append(at, i)
		}
	}
	m := make([][]float64, len(at)) // the last column is the right side
	for i := range m {
		m[i] = make([]float64, len(at)+1)
	}
	for _, r := range rows {
		if r.y <= 0 {
			return nil, false
		}
		for i, a := range at {
			for j, b := range at {
				m[i][j] += r.x[a] * r.x[b] / (r.y * r.y)
			}
			m[i][len(at)] += r.x[a] / r.y
		}
	}
	found, ok := eliminate(m)
	if !ok {
		return nil, false
	}
	k = make([]float64, n)
	for i, a := range at {
		k[a] = found[i]
	}
	return k, true
}

// singular is how small a pivot is, beside the largest of its column, when the equations say the same twice.
const singular = 1e-9

// eliminate is Gauss's, with the largest pivot; columns are scaled first, since unknowns differ by many orders.
func eliminate(m [][]float64) ([]float64, bool) {
	n := len(m)
	scale := make([]float64, n)
	for j := range n {
		scale[j] = math.Sqrt(m[j][j])
		if scale[j] == 0 {
			return nil, false
		}
	}
	for i := range n {
		for j := range n {
			m[i][j] /= scale[i] * scale[j]
		}
		m[i][n] /= scale[i]
	}
	for c := range n {
		top := c
		for i := c + 1; i < n; i++ {
			if math.Abs(m[i][c]) > math.Abs(m[top][c]) {
				top = i
			}
		}
		m[c], m[top] = m[top], m[c]
		if math.Abs(m[c][c]) < singular {
			return nil, false
		}
		for i := range n {
			if i == c {
				continue
			}
			f := m[i][c] / m[c][c]
			for j := c; j <= n; j++ {
				m[i][j] -= f * m[c][j]
			}
		}
	}
	out := make([]float64, n)
	for i := range n {
		out[i] = m[i][n] / m[i][i] / scale[i]
	}
	return out, true
}

func predicted(r row, k []float64) (y float64) {
	for i, x := range r.x {
		y += x * k[i]
	}
	return y
}

func residual(rows []row, k []float64) (sum float64) {
	for _, r := range rows {
		e := (predicted(r, k) - r.y) / r.y
		sum += e * e
	}
	return sum
}

func meanError(rows []row, k []float64) (sum float64) {
	for _, r := range rows {
		sum += math.Abs(predicted(r, k)-r.y) / r.y
	}
	return sum / float64(len(rows))
}
