package up

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"millrace/db/bus"
	"millrace/internal/datafolder"
)

// logFile tells commands beside a running `up` how to reach its NATS server. It holds a secret: mode 0600.
const logFile = "nats.json"

type logAddress struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// startLog runs NATS. It listens on loopback, with a token of this start's own, for `millrace reconcile` alone.
func (u *instance) startLog(ctx context.Context) error {
	if u.lostLog() {
		u.say.step("WARNING: the usage log is gone (nats/ is missing or empty): a new one begins. Requests that the old one held and that were not "+
			"rated yet cannot be billed any more; `millrace reconcile --data %s` says how many. All that was rated is in the database.", u.folder.Path())
	}
	dir, err := u.folder.Dir("nats")
	if err != nil {
		return err
	}
	u.say.step("starting the usage log (NATS JetStream)")
	at := logAddress{Token: rand.Text()}
	if u.nats, err = bus.StartEmbedded(ctx, bus.EmbeddedConfig{Dir: dir, SyncAlways: true, Listen: "127.0.0.1:0", Token: at.Token}); err != nil {
		return err
	}
	u.onEnd(func() error { u.nats.Stop(); return nil })
	at.URL = u.nats.URL()
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return datafolder.WriteFile(u.folder.Path(logFile), text, 0o600)
}

// lostLog reports whether an earlier life's usage log is missing. The database survives that, so the start goes on.
func (u *instance) lostLog() bool {
	if _, err := os.Stat(u.folder.Path(logFile)); err != nil {
		return false // no earlier life came so far
	}
	in, err := os.ReadDir(u.folder.Path("nats"))
	return errors.Is(err, os.ErrNotExist) || err == nil && len(in) == 0
}

// besideLog connects to the log of the `up` that runs on a data folder.
func besideLog(ctx context.Context, data string) (*bus.Bus, error) {
	text, err := os.ReadFile(filepath.Join(data, logFile))
	if err != nil {
		return nil, err
	}
	var at logAddress
	if err := json.Unmarshal(text, &at); err != nil {
		return nil, errors.Join(errors.New("the address of the usage log cannot be read"), err)
	}
	return bus.Connect(ctx, bus.Config{URL: at.URL, Token: at.Token, Name: "millrace command"})
}
