package ui

import (
	"encoding/csv"
	"io"

	"millrace/internal/sheet"
)

// WriteCSV writes the grid with its header and without its totals: full precision, times in UTC, and text cells that a
// spreadsheet would run as a formula made harmless.
func (g Grid) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	head := make([]string, len(g.Columns))
	for i, c := range g.Columns {
		head[i] = sheet.Text(c.Name)
	}
	if err := out.Write(head); err != nil {
		return err
	}
	for _, row := range g.Rows {
		line := make([]string, len(row))
		for i, c := range row {
			line[i] = c.CSV
			if !c.plain {
				line[i] = sheet.Text(c.CSV)
			}
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
