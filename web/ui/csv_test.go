package ui

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"millrace/internal/money"
)

func TestCSVHoldsWhatTheTableShows(t *testing.T) {
	g := Grid{
		Columns: []Column{{Name: "Name"}, {Name: "Cost"}, {Name: "Tokens"}, {Name: "When"}, {Name: "Status"}},
		Rows: []Row{{
			L("/x", `=HYPERLINK("http://evil")`), USD(-1_234_567_891), Tok(1_240_000),
			At(time.Date(2026, 11, 30, 13, 40, 0, 0, time.FixedZone("CET", 3600))), N(Tag(Good, "active"), "active"),
		}},
		Foot: Row{T("Total")},
	}
	var out bytes.Buffer
	if err := g.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`'=HYPERLINK("http://evil")`, "-1.234567891", "1240000", "2026-11-30T12:40:00Z", "active"}
	if len(rows) != 2 || strings.Join(rows[1], "|") != strings.Join(want, "|") {
		t.Errorf("rows %q, want %q", rows, want)
	}
}

// No text cell may start, for any spreadsheet, like a formula; and text without danger stays as it is.
func FuzzNeutral(f *testing.F) {
	for _, s := range []string{"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\u00a0=1", "plain", "", "Größe", "'quoted", "\ufeff=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := neutral(s)
		if got != s && got != "'"+s {
			t.Fatalf("%q became %q", s, got)
		}
		bare := strings.TrimLeft(got, " \u00a0\ufeff")
		if bare != "" && strings.ContainsAny(bare[:1], "=+-@\t\r\n") {
			t.Fatalf("%q would run as a formula", got)
		}
	})
}

func TestNeutralLeavesPlainTextAlone(t *testing.T) {
	for _, s := range []string{"acme/llama-70b", "Größe 5", "3 things", ""} {
		if neutral(s) != s {
			t.Errorf("%q became %q", s, neutral(s))
		}
	}
	if c := USD(money.Nano(-5)); !c.plain {
		t.Error("an amount of our own needs no apostrophe")
	}
}
