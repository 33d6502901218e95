package credit

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"millrace/internal/fault"
)

// CheckWords refuses what somebody wrote when no page, document or database can show or keep it: bytes that are no text, and
// control and format characters, which hide words or turn them around. Lines may end.
func CheckWords(param, text string) error {
	hidden := func(r rune) bool {
		return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
	if utf8.ValidString(text) && !strings.ContainsFunc(text, hidden) {
		return nil
	}
	return fault.New(fault.Invalid, "It has a control or format character, or bytes that are no text.").WithParam(param)
}

// checkWritten refuses such a reason or key.
func checkWritten(reason, key string) error {
	if err := CheckWords("reason", reason); err != nil {
		return err
	}
	return CheckWords("idempotency_key", key)
}
