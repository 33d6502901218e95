package wire

import (
	"bytes"
	"testing"
)

func TestJoinTokenSurvivesCopying(t *testing.T) {
	ca := bytes.Repeat([]byte{7}, 32)
	a := NewJoinToken(ca)
	b, err := ParseJoinToken("  " + a.String() + "\n")
	if err != nil || a != b || !bytes.Equal(a.Hash(), b.Hash()) {
		t.Fatalf("%v, %v, %v", a, b, err)
	}
	if NewJoinToken(ca) == a {
		t.Fatal("two equal secrets")
	}
	for _, bad := range []string{"", "mrj_", a.String()[4:], a.String()[:20], a.String() + "AA", "mrj_!!"} {
		if _, err := ParseJoinToken(bad); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}
