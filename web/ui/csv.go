package ui

import (
	"encoding/csv"
	"io"
	"strings"
)

// WriteCSV writes the grid with its header and without its totals: full precision, times in UTC, and text cells that a
// spreadsheet would run as a formula made harmless.
func (g Grid) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	head := make([]string, len(g.Columns))
	for i, c := range g.Columns {
		head[i] = neutral(c.Name)
	}
	if err := out.Write(head); err != nil {
		return err
	}
	for _, row := range g.Rows {
		line := make([]string, len(row))
		for i, c := range row {
			line[i] = c.CSV
			if !c.plain {
				line[i] = neutral(c.CSV)
			}
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// neutral puts an apostrophe before text that a spreadsheet would take for a formula, also behind leading blanks.
func neutral(s string) string {
	t := strings.TrimLeft(s, " \u00a0\ufeff")
	if s != "" && strings.ContainsRune("\t\r\n", rune(s[0])) || t != "" && strings.ContainsRune("=+-@\t\r\n|%", []rune(t)[0]) {
		return "'" + s
	}
	return s
}
