package gate

import (
	"errors"
	"testing"
)

func TestAPanicIsALegsFailure(t *testing.T) {
	if err := guarded(func() error { panic("odd") }); err == nil {
		t.Error("a panic is told as a success")
	}
	want := errors.New("refused")
	if err := guarded(func() error { return want }); !errors.Is(err, want) {
		t.Error(err)
	}
}
