package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"time"

	"millrace/agents/wire"
)

// ErrUpdated is how Run ends when another program is to go on: Config.Program.Switch.
var ErrUpdated = errors.New("another program of the agent is to go on")

// Times of an update.
const (
	fetchLimit = 15 * time.Minute
	fetchPause = time.Minute // before an update that failed is tried again
)

// updating is an update on its way.
type updating struct {
	done chan struct{} // closed when the new program is there

	mu    sync.Mutex
	busy  bool
	due   time.Time // when the update of this digest may begin
	of    []byte
	vain  []byte    // digest of what could not be installed
	until time.Time // and when to try it again
}

// begin reports whether to fetch the update now. Each host has its own moment within the spread: a fleet that followed its
// channel at once would take nothing new anywhere while it drains.
func (u *updating) begin(want *wire.Update, now time.Time, spread time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !bytes.Equal(u.of, want.SHA256) {
		u.of, u.due = want.SHA256, now
		if spread > 0 {
			u.due = now.Add(rand.N(spread))
		}
	}
	if u.busy || now.Before(u.due) || bytes.Equal(u.vain, want.SHA256) && now.Before(u.until) {
		return false
	}
	u.busy = true
	return true
}

func (u *updating) failed(want *wire.Update, until time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy, u.vain, u.until = false, want.SHA256, until
}

var platform = runtime.GOOS + "/" + runtime.GOARCH

// follow installs what the hub's channel names. It returns at once; the work ends with the link.
func (a *agent) follow(ctx context.Context, client *http.Client, u *wire.Update, owner func(func())) {
	if a.cfg.Program == nil || !a.cfg.Program.Wants(u, a.cfg.Version) || !a.updating.begin(u, a.cfg.Clock.Now(), a.cfg.UpdateSpread) {
		return
	}
	owner(func() {
		a.log.Info("fetching another version of this program", "version", u.Version)
		err := a.cfg.Program.Install(u, func(w io.Writer) error { return a.fetchProgram(ctx, client, w) })
		if err == nil {
			close(a.updating.done)
			return
		}
		again := a.cfg.Clock.Now()
		if ctx.Err() == nil {
			a.log.Error("this program cannot be updated", "version", u.Version, "error", err)
			again = again.Add(fetchPause)
		}
		a.updating.failed(u, again)
	})
}

func (a *agent) fetchProgram(ctx context.Context, client *http.Client, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	query := url.Values{"channel": {a.cfg.Channel}, "platform": {platform}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, linkURL+wire.PathProgram+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrText))
		return &hubError{resp.StatusCode, string(text)}
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("the program broke off: %w", err)
	}
	return nil
}
