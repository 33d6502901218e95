package ui

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawBars(t *rapid.T) Bars {
	n := rapid.IntRange(1, 40).Draw(t, "buckets")
	b := Bars{Label: "Spend", Format: FormatCount}
	for i := range n {
		b.Buckets = append(b.Buckets, strconv.Itoa(i))
	}
	for s := range rapid.IntRange(1, MaxSeries).Draw(t, "series") {
		b.Series = append(b.Series, Series{Name: "s" + strconv.Itoa(s), Values: rapid.SliceOfN(rapid.Int64Range(0, 1<<50), n, n).Draw(t, "values")})
	}
	return b
}

// Every bar ends inside the plot, layers stand on each other without gap, and the axis divides evenly.
func TestBarsStayInsideTheAxis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBars(t)
		top := b.top()
		if top%gridLines != 0 {
			t.Fatalf("axis end %d does not divide by %d", top, gridLines)
		}
		for i := range b.Buckets {
			if b.total(i) > top {
				t.Fatalf("bar %d of %d above the axis end %d", i, b.total(i), top)
			}
			floor := float64(chartTall)
			for _, r := range b.rects(i) {
				y, h := number(t, r.y), number(t, r.h)
				if y < -.011 || y+h > floor+.03 || y+h < floor-.03 {
					t.Fatalf("layer from %v to %v, expected to stand on %v", y, y+h, floor)
				}
				floor = y
			}
		}
	})
}

func number(t *rapid.T, s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The table behind a chart holds every value and the sums.
func TestChartDataIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBars(t)
		g := b.Data()
		if len(g.Rows) != len(b.Buckets) || len(g.Columns) != len(b.Series)+2 {
			t.Fatalf("%d rows and %d columns for %d buckets and %d series", len(g.Rows), len(g.Columns), len(b.Buckets), len(b.Series))
		}
		for i, row := range g.Rows {
			if row[len(row)-1].Text != FormatCount(b.total(i)) {
				t.Fatalf("row %d sums to %s, want %d", i, row[len(row)-1].Text, b.total(i))
			}
		}
	})
}

func TestSparkPointsStayInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(-5, 1<<60), 2, 50).Draw(t, "values")
		for _, p := range strings.Fields(sparkPoints(values, true)) {
			x, y, _ := strings.Cut(p, ",")
			if a, b := number(t, x), number(t, y); a < 0 || a > 100 || b < 0 || b > 28 {
				t.Fatalf("point %s outside", p)
			}
		}
	})
}

func TestDrawnNamesAreEscaped(t *testing.T) {
	evil := `"><script>alert(1)</script>`
	b := Bars{Label: evil, Buckets: []string{evil}, Series: []Series{{Name: evil, Values: []int64{1}}, {Name: "b", Values: []int64{2}}}, Format: func(int64) string { return evil }}
	var out bytes.Buffer
	if err := StackedBars(b).Render(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "<script") {
		t.Error("a name was drawn as markup")
	}
}
