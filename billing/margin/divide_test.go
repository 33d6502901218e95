package margin

import (
	"testing"

	"pgregory.net/rapid"

	"millrace/internal/money"
)

// However a cost is shared out, nothing is lost and nobody's part is off by more than a nano-dollar.
func TestDivideLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := money.Nano(rapid.Int64Range(0, int64(100_000*money.NanoPerUSD)).Draw(t, "cost"))
		weights := rapid.SliceOfN(rapid.Int64Range(0, 1<<50), 1, 40).Draw(t, "weights")
		of := make([]share, len(weights))
		var whole int64
		for i, w := range weights {
			of[i].weighted = w
			whole += w
		}
		var sum money.Nano
		for i, n := range divide(&cost, of) {
			sum += n
			if whole > 0 {
				if exact := money.Nano(mulDiv(int64(cost), weights[i], whole)); n < exact || n > exact+1 {
					t.Fatalf("part %d is %d, exactly %d", i, n, exact)
				}
			}
		}
		if sum != cost {
			t.Fatalf("%d of %d", sum, cost)
		}
	})
}
