// Package sheet makes text harmless to spreadsheets: Excel, LibreOffice and Google Sheets run a cell of a CSV file whose text
// begins like a formula. It knows nothing else of files.
//
// Invariant: Text(Text(s)) begins with at most one apostrophe more than s, and no text that Text gives is run. Numbers and
// times of our own making are not passed through it: "-0.5" must stay a number.
package sheet

import (
	"strings"
	"unicode/utf8"
)

const (
	// starts are what a formula or command can begin with; the wide forms are what East Asian input methods type.
	starts = "=+-@|%\t\r\n＝＋－＠"
	// blanks are skipped by programs that trim cells before they look.
	blanks = " \u00a0\ufeff\u200b\u3000"
)

// Text puts an apostrophe before what a spreadsheet would take for a formula, also behind leading blanks.
func Text(s string) string {
	t := strings.TrimLeft(s, blanks)
	if t == "" {
		return s
	}
	if first, _ := utf8.DecodeRuneInString(t); strings.ContainsRune(starts, first) {
		return "'" + s
	}
	return s
}
