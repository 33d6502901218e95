package ui

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Bars is a stacked bar chart: one bar per bucket, one layer per series.
type Bars struct {
	Label   string             // what the chart shows, for the title and the data table
	Buckets []string           // names of the buckets, oldest first
	Series  []Series           // at most MaxSeries; fold the rest into one before
	Format  func(int64) string // how a value reads
}

// Series is one layer. Values are as many as the buckets and never negative.
type Series struct {
	Name   string
	Values []int64
}

// MaxSeries is how many colours a chart has; the last is for "other".
const MaxSeries = 5

// Geometry of a chart, in its own units; the page stretches it.
const (
	barPitch   = 10  // width of one bucket
	chartTall  = 200 // height of the plot
	gridLines  = 4
	wantLabels = 6 // about how many names fit under the axis
)

type rect struct {
	x, y, w, h, class string
}

func (b Bars) total(bucket int) int64 {
	var sum int64
	for _, s := range b.Series {
		sum += s.Values[bucket]
	}
	return sum
}

// top is the axis's end: the smallest nice number at or above the highest bar, divisible by the grid lines.
func (b Bars) top() int64 {
	var high int64
	for i := range b.Buckets {
		high = max(high, b.total(i))
	}
	for unit := int64(1); ; unit *= 10 {
		for _, m := range []int64{4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36} {
			if t := unit * m; t%gridLines == 0 && (t >= high || t > 1<<60) {
				return t
			}
		}
	}
}

// scale is v as a length when top is chartTall, with two decimals.
func scale(v, top int64) string {
	hi, lo := bits.Mul64(uint64(v), chartTall*100)
	q, _ := bits.Div64(hi, lo, uint64(top))
	return hundredths(int64(q))
}

func hundredths(v int64) string {
	return strings.TrimSuffix(fmt.Sprintf("%d.%02d", v/100, v%100), ".00")
}

func (b Bars) rects(bucket int) []rect {
	top, out := b.top(), []rect{}
	var below int64
	for i, s := range b.Series {
		v := s.Values[bucket]
		if v <= 0 {
			continue
		}
		below += v
		out = append(out, rect{
			x: hundredths(int64(bucket*barPitch*100 + 150)), w: "7",
			y: scale(top-below, top), h: scale(v, top), class: "f" + strconv.Itoa(i+1),
		})
	}
	return out
}

func (b Bars) view() string {
	return fmt.Sprintf("0 0 %d %d", max(1, len(b.Buckets))*barPitch, chartTall)
}

// tip is what a pointer resting on a bar reads.
func (b Bars) tip(bucket int) string {
	var s strings.Builder
	s.WriteString(b.Buckets[bucket] + ": " + b.Format(b.total(bucket)))
	for _, x := range b.Series {
		if v := x.Values[bucket]; v > 0 && len(b.Series) > 1 {
			s.WriteString("\n" + x.Name + " " + b.Format(v))
		}
	}
	return s.String()
}

// axis are the names of the grid lines, highest first.
func (b Bars) axis() []string {
	top, out := b.top(), make([]string, 0, gridLines+1)
	for i := gridLines; i >= 0; i-- {
		out = append(out, strings.TrimSuffix(b.Format(top/gridLines*int64(i)), ".00"))
	}
	return out
}

// named reports whether a bucket's name is printed, and whether it goes away on a phone.
func (b Bars) named(bucket int) (shown, minor bool) {
	every := max(1, (len(b.Buckets)+wantLabels-1)/wantLabels)
	return bucket%every == 0, bucket/every%2 == 1
}

// Data is the chart's table: a row per bucket, a column per series, and the sum.
func (b Bars) Data() Grid {
	g := Grid{Caption: b.Label + ", data", Columns: []Column{{Name: "Period"}}}
	for _, s := range b.Series {
		g.Columns = append(g.Columns, Column{Name: s.Name, Num: true})
	}
	g.Columns = append(g.Columns, Column{Name: "Total", Num: true})
	for i, name := range b.Buckets {
		row := Row{T(name)}
		for _, s := range b.Series {
			row = append(row, T(b.Format(s.Values[i])))
		}
		g.Rows = append(g.Rows, append(row, T(b.Format(b.total(i)))))
	}
	return g
}

// sparkPoints draws values as a polyline of 100 by 28 units; closed, it is the area under the line.
func sparkPoints(values []int64, closed bool) string {
	const wide, tall, pad = 10000, 2400, 200
	var high int64 = 1
	for _, v := range values {
		high = max(high, v)
	}
	var s strings.Builder
	for i, v := range values {
		x := int64(0)
		if len(values) > 1 {
			x = int64(i) * wide / int64(len(values)-1)
		}
		hi, lo := bits.Mul64(uint64(max(v, 0)), tall)
		h, _ := bits.Div64(hi, lo, uint64(high))
		fmt.Fprintf(&s, "%s,%s ", hundredths(x), hundredths(pad+tall-int64(h)))
	}
	if closed {
		s.WriteString("100,28 0,28")
	}
	return strings.TrimSpace(s.String())
}
