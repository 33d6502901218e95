package pg

import (
	"io"
	"strings"
	"sync"
)

// tailBytes is how much of the server's last output an error message quotes.
const tailBytes = 4 << 10

// tail passes output on and keeps its end, for error messages.
type tail struct {
	mu   sync.Mutex
	next io.Writer
	kept []byte
}

func newTail(next io.Writer) *tail { return &tail{next: next} }

// Write never fails: a log that cannot be written must not stop the server.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		_, _ = t.next.Write(b)
	}
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(b), nil
}

// String is the kept end.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}

func (t *tail) contains(s string) bool { return strings.Contains(t.String(), s) }
