package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/internal/pki"
)

const (
	linkURL     = "http://link" // the link's transport looks at the path only
	steadyLink  = 10 * time.Second
	factsBuffer = 32 << 10
)

// stayLinked keeps the link to the hub, dialling again after every break.
func (a *agent) stayLinked(ctx context.Context) {
	pause := newBackoff()
	for ctx.Err() == nil {
		began := a.cfg.Clock.Now()
		err := a.linked(ctx)
		if ctx.Err() != nil {
			return
		}
		if a.cfg.Clock.Now().Sub(began) > steadyLink {
			pause = newBackoff()
		}
		a.log.Warn("no link to the hub", "error", err)
		_ = pause.wait(ctx) // ends with ctx, which the loop looks at
	}
}

// linked is the life of one link.
func (a *agent) linked(ctx context.Context) error {
	if cert, _ := a.self.source.Current(); !a.cfg.Clock.Now().Before(cert.Leaf.NotAfter) {
		if err := a.renew(ctx); err != nil {
			return fmt.Errorf("the certificate has ended and cannot be renewed: %w", err)
		}
	}
	url := "wss" + strings.TrimPrefix(a.cfg.Hub, "https") + wire.PathLink
	l, err := link.Dial(ctx, url, a.self.trust.Dial(a.self.source, pki.Hub), a.proxy, a.hubAsks(), a.log)
	if err != nil {
		return a.perhapsJoin(ctx, err)
	}
	defer l.Close()
	client := &http.Client{Transport: l.Transport()}
	a.setLink(client)
	defer a.setLink(nil)
	a.log.Info("linked", "hub", a.cfg.Hub)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { a.again(ctx, "sync", func() error { return a.sync(ctx, client) }) })
	work.Go(func() { a.again(ctx, "facts", func() error { return a.tell(ctx, client) }) })
	select {
	case <-ctx.Done():
	case <-l.Done():
	}
	cancel()
	l.Close()
	work.Wait()
	return errors.New("the link broke")
}

// perhapsJoin uses a spare token when the hub does not know this host: its database is another one than before.
func (a *agent) perhapsJoin(ctx context.Context, err error) error {
	var refused *link.Refused
	if a.token == nil || !errors.As(err, &refused) || refused.Status != http.StatusForbidden {
		return err
	}
	return errors.Join(err, a.join(ctx))
}

// again repeats a task of the link while the link lives: a hub whose database is away refuses for a while.
func (a *agent) again(ctx context.Context, what string, task func() error) {
	pause := newBackoff()
	for {
		began := a.cfg.Clock.Now()
		err := task()
		if ctx.Err() != nil {
			return
		}
		if a.cfg.Clock.Now().Sub(began) > steadyLink {
			pause = newBackoff()
		}
		a.log.Warn("the hub does not take it now", "what", what, "error", err)
		if pause.wait(ctx) != nil {
			return
		}
	}
}

// tell streams facts as lines until it breaks.
func (a *agent) tell(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, linkURL+wire.PathFacts, r)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	var streaming sync.WaitGroup
	streaming.Go(func() {
		out := bufio.NewWriterSize(w, factsBuffer)
		lines := json.NewEncoder(out)
		_ = w.CloseWithError(a.board.Stream(ctx, func(f wire.Fact) error {
			if err := lines.Encode(f); err != nil {
				return err
			}
			return out.Flush()
		}))
	})
	defer streaming.Wait()
	defer cancel()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrText))
	return &hubError{resp.StatusCode, string(text)}
}

// sendAttempts is the journal's way to the hub.
func (a *agent) sendAttempts(ctx context.Context, batch []wire.Attempt) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx, client, linkURL+wire.PathJournal, batch, nil)
}
