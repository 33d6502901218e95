package report

import (
	"bytes"
	"encoding/csv"
	"net/url"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// zones with clock changes at midnight, of half an hour, and none.
var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo"}

func zone(t interface{ Fatal(...any) }, name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func drawNow(t *rapid.T) time.Time {
	z := zone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
	return time.Unix(rapid.Int64Range(1_300_000_000, 1_900_000_000).Draw(t, "now"), 0).In(z)
}

// Buckets tile the span without gap or overlap, each begins a day or an hour, and now is inside.
func TestBucketsTileTheSpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := drawNow(t)
		q := url.Values{"range": {rapid.SampledFrom([]string{"", "today", "7d", "30d", "month", "nonsense"}).Draw(t, "range")}}
		s := SpanOf(q.Get, now)
		if now.Before(s.From) || !now.Before(s.To) {
			t.Fatalf("%s is not in %s to %s", now, s.From, s.To)
		}
		at := s.From
		for _, start := range s.Starts() {
			if !start.Equal(at) {
				t.Fatalf("bucket starts at %s, the one before ended at %s", start, at)
			}
			at = s.next(start)
			if width := at.Sub(start); s.Step == StepDay && (width < 22*time.Hour || width > 26*time.Hour) {
				t.Fatalf("the day of %s has %s", start, width)
			}
			if start.Minute()%15 != 0 {
				t.Fatalf("bucket at %s cannot be built of quarters of an hour", start)
			}
		}
		if !at.Equal(s.To) && s.Step == StepDay {
			t.Fatalf("buckets end at %s, the span at %s", at, s.To)
		}
	})
}

func TestCustomRanges(t *testing.T) {
	now := time.Date(2026, 11, 30, 14, 0, 0, 0, zone(t, "Europe/Berlin"))
	for _, c := range []struct {
		from, to, title string
		step            Step
		preset          string
	}{
		{"2026-11-03", "2026-11-03", "3 November 2026", StepHour, ""},
		{"2026-11-01", "2026-11-07", "1 Nov to 7 Nov 2026", StepDay, ""},
		{"2025-12-25", "2026-01-05", "25 Dec 2025 to 5 Jan 2026", StepDay, ""},
		{"2026-11-07", "2026-11-01", "1 Nov to 30 Nov 2026", StepDay, "30d"}, // backwards
		{"2020-01-01", "2026-01-01", "1 Nov to 30 Nov 2026", StepDay, "30d"}, // too long
		{"yesterday", "today", "1 Nov to 30 Nov 2026", StepDay, "30d"},
	} {
		s := SpanOf(url.Values{"from": {c.from}, "to": {c.to}}.Get, now)
		if s.Title() != c.title || s.Step != c.step || s.Preset != c.preset {
			t.Errorf("%s to %s reads %q, step %s, preset %q", c.from, c.to, s.Title(), s.Step, s.Preset)
		}
	}
}

// Clocks in Beirut skipped midnight on 27 March 2022: the day begins at one.
func TestADayWithoutMidnight(t *testing.T) {
	day := Day(time.Date(2022, 3, 27, 15, 0, 0, 0, zone(t, "Asia/Beirut")), 0)
	if day.Day() != 27 || day.Hour() != 1 {
		t.Errorf("27 March 2022 begins at %s", day)
	}
}

func drawCells(t *rapid.T, s Span) []Cell {
	starts := s.Starts()
	groups := rapid.IntRange(1, 9).Draw(t, "groups")
	var out []Cell
	for range rapid.IntRange(0, 60).Draw(t, "cells") {
		g := strconv.Itoa(rapid.IntRange(0, groups-1).Draw(t, "group"))
		c := Cell{Bucket: starts[rapid.IntRange(0, len(starts)-1).Draw(t, "bucket")], Group: g, Label: "g" + g, Requests: rapid.Int64Range(0, 1e6).Draw(t, "requests"), Cost: money.Nano(rapid.Int64Range(0, 1e12).Draw(t, "cost"))}
		c.Usage[usage.Input], c.Usage[usage.Output] = rapid.Int64Range(0, 1e9).Draw(t, "in"), rapid.Int64Range(0, 1e9).Draw(t, "out")
		out = append(out, c)
	}
	return out
}

// Chart, rows and total say the same sum, whatever is measured and however many groups are folded together.
func TestEveryViewHasTheSameSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := SpanOf(url.Values{"range": {rapid.SampledFrom([]string{"today", "7d"}).Draw(t, "range")}}.Get, drawNow(t))
		cells := drawCells(t, s)
		m := rapid.SampledFrom([]Metric{Cost, Tokens, Requests}).Draw(t, "metric")
		g := rapid.SampledFrom([]GroupBy{ByModel, ByDay}).Draw(t, "group")
		var want int64
		for _, c := range cells {
			want += m.Of(c)
		}
		rep := New(cells, s, g, m)
		var rows, bars int64
		for _, r := range rep.tableRows() {
			rows += m.Of(r.Cell)
		}
		b := rep.Bars(m, "x")
		for _, series := range b.Series {
			for _, v := range series.Values {
				bars += v
			}
		}
		if m.Of(rep.Total.Cell) != want || rows != want || bars != want || len(b.Series) > ui.MaxSeries {
			t.Fatalf("cells %d, total %d, rows %d, chart %d in %d series", want, m.Of(rep.Total.Cell), rows, bars, len(b.Series))
		}
	})
}

func TestTheFileHoldsTheRowsOfTheTable(t *testing.T) {
	now := time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)
	s := SpanOf(url.Values{"range": {"7d"}}.Get, now)
	cells := []Cell{{Bucket: s.From, Group: "a", Label: "+evil", Requests: 2, Cost: 1_500_000_001}, {Bucket: s.From, Group: "b", Label: "b", Requests: 1, Cost: 3}}
	grid := New(cells, s, ByModel, Cost).Grid("Model", func(r Row) ui.Cell { return ui.T(r.Label) }, ui.Blank{})
	var out bytes.Buffer
	if err := grid.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 || rows[1][0] != "'+evil" || rows[1][len(rows[1])-1] != "1.500000001" || rows[2][len(rows[2])-1] != "0.000000003" {
		t.Errorf("%q", rows)
	}
}

func TestAddressesKeepTheOtherFilters(t *testing.T) {
	a := Address{"/usage", url.Values{"range": {"7d"}, "metric": {"tokens"}}}
	for _, c := range []struct{ got, want string }{
		{a.With("metric", ""), "/usage?range=7d"},
		{a.With("model", "acme/llama 70b"), "/usage?metric=tokens&model=acme%2Fllama+70b&range=7d"},
		{a.With("range", "", "metric", ""), "/usage"},
		{a.With(), "/usage?metric=tokens&range=7d"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}
