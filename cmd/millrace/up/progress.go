package up

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"millrace/internal/clock"
)

// progress prints the steps of a start: a line per step, and for a download a bar on a terminal or a line per tenth
// elsewhere.
type progress struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	clock    clock.Clock
	started  time.Time
	barFor   string
	tenth    int64
}

func newProgress(w *os.File, c clock.Clock) *progress {
	info, err := w.Stat()
	return &progress{w: w, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, clock: c, started: c.Now()}
}

func (p *progress) step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endBar()
	fmt.Fprintf(p.w, "%5.1fs  %s\n", p.clock.Now().Sub(p.started).Seconds(), fmt.Sprintf(format, args...))
}

const barCells = 30

// report is a Progress function: total 0 is a step without a measure, else done of total bytes.
func (p *progress) report(done, total int64, what string) {
	if total <= 0 {
		p.step("%s", what)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.barFor != what {
		p.endBar()
		p.barFor, p.tenth = what, -1
	}
	done = min(done, total)
	if tenth := done * 10 / total; !p.terminal && tenth != p.tenth {
		p.tenth = tenth
		fmt.Fprintf(p.w, "%s  %d %%\n", what, tenth*10)
	}
	if p.terminal {
		full := int(done * barCells / total)
		fmt.Fprintf(p.w, "\r%s  [%s%s] %3d %%  %d of %d MB", what, strings.Repeat("#", full), strings.Repeat(".", barCells-full),
			done*100/total, done>>20, total>>20)
	}
}

func (p *progress) endBar() {
	if p.barFor != "" && p.terminal {
		fmt.Fprintln(p.w)
	}
	p.barFor = ""
}
