package money

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestRoundingIsHalfToEven(t *testing.T) {
	for _, c := range []struct {
		pico Pico
		want Nano
	}{{0, 0}, {499, 0}, {500, 0}, {501, 1}, {1500, 2}, {2500, 2}, {2501, 3}, {-500, 0}, {-501, -1}, {-1500, -2}, {999, 1}} {
		if got := c.pico.Nano(); got != c.want {
			t.Errorf("%d pico = %d nano, want %d", c.pico, got, c.want)
		}
	}
}

func TestCeilCoversTheRoundedCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Pico(rapid.Int64Range(0, int64(MaxPico)).Draw(t, "pico"))
		if p.CeilNano() < p.Nano() {
			t.Fatalf("hold %d below charge %d", p.CeilNano(), p.Nano())
		}
	})
}

func TestCostMatchesBigIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-10, 1<<50).Draw(t, "tokens")
		p := rapid.Int64Range(-10, 1<<50).Draw(t, "price")
		exact := new(big.Int).Mul(big.NewInt(n), big.NewInt(p))
		got, ok := Cost(n, Pico(p))
		want := n >= 0 && p >= 0 && exact.Cmp(big.NewInt(int64(MaxPico))) <= 0
		if ok != want || ok && exact.Cmp(big.NewInt(int64(got))) != 0 {
			t.Fatalf("Cost(%d, %d) = %d, %v", n, p, got, ok)
		}
	})
}

func TestAmountsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := Nano(rapid.Int64Range(-1<<62, 1<<62).Draw(t, "nano"))
		back, err := ParseUSD(n.String())
		if err != nil || back != n {
			t.Fatalf("%d -> %q -> %d, %v", n, n.String(), back, err)
		}
	})
	for _, bad := range []string{"", ".", "1e3", "0.0000000001", "1,5", "99999999999999", "--1", "1_0"} {
		if _, err := ParseUSD(bad); err == nil {
			t.Errorf("ParseUSD(%q) passed", bad)
		}
	}
	if p, _ := ParsePerMillion("0.15"); p != 150_000 || p.PerMillion() != "0.15" {
		t.Errorf("0.15 per million = %d pico (%s)", p, p.PerMillion())
	}
}
