package protocol

import (
	"bytes"
	"testing"

	"millrace/internal/ids"
	"millrace/internal/seal"
)

func TestSealedReasoningComesBackToItsOrganizationOnly(t *testing.T) {
	master, err := seal.New(bytes.Repeat([]byte{7}, seal.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	own, other := ReasoningSeal{master, ids.New()}, ReasoningSeal{master, ids.New()}
	const text = `one \"two\" 三\n`
	sealed := own.Append(nil, []byte(text))
	if got := own.Open(sealed); string(got) != text {
		t.Fatalf("came back as %q", got)
	}
	broken := bytes.Clone(sealed)
	broken[len(broken)-1] ^= 1
	for name, got := range map[string][]byte{"another organization": other.Open(sealed), "a changed byte": own.Open(broken), "foreign": own.Open([]byte("EqQBCgIYAg==")),
		"none": own.Open(nil), "no base64": own.Open([]byte(sealMark + "%%"))} {
		if got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}
