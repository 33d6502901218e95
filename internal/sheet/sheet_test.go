package sheet_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"millrace/internal/sheet"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"llama-70b":                 "llama-70b",
		"Größe 5":                   "Größe 5",
		"a=b":                       "a=b",
		"'quoted":                   "'quoted",
		"=1+1":                      "'=1+1",
		"+49 30 1234":               "'+49 30 1234",
		"-2":                        "'-2", // text that looks like a number is still text
		"@SUM(A1)":                  "'@SUM(A1)",
		"|calc":                     "'|calc",
		"%0A":                       "'%0A",
		"\t=1":                      "'\t=1",
		"\r=1":                      "'\r=1",
		"\n=1":                      "'\n=1",
		"  =1":                      "'  =1",
		"\u00a0=1":                  "'\u00a0=1",
		"\ufeff=1":                  "'\ufeff=1",
		"\u3000=1":                  "'\u3000=1",
		"＝1+1":                      "'＝1+1",
		"=HYPERLINK(\"x\",\"y\")":   "'=HYPERLINK(\"x\",\"y\")",
		"=cmd|' /C calc'!A0":        "'=cmd|' /C calc'!A0",
		"   ":                       "   ",
		"\xff=1":                    "\xff=1", // not UTF-8: no program takes it for a formula
		"acme, \"the\" company\n=1": "acme, \"the\" company\n=1",
	} {
		if got := sheet.Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"=1", " \t=1", "x", "＝", "\u00a0 -1", "'=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := sheet.Text(s)
		if got != s && got != "'"+s {
			t.Fatalf("Text(%q) = %q changes more than its beginning", s, got)
		}
		// What a spreadsheet would look at first, by the widest reading of blanks.
		first, _ := utf8.DecodeRuneInString(strings.TrimLeft(got, " \u00a0\ufeff\u200b\u3000"))
		if strings.ContainsRune("=+-@|%\t\r\n＝＋－＠", first) && first != utf8.RuneError {
			t.Fatalf("Text(%q) = %q can be run", s, got)
		}
	})
}
