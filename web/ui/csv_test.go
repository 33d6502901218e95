package ui

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
	"time"
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
