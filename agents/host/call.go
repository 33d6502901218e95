package host

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"millrace/agents/link"
)

const (
	maxAnswer   = 4 << 20 // bytes of a hub's answer
	maxErrText  = 300
	tlsTimeout  = 10 * time.Second
	callTimeout = 30 * time.Second // of a call that is not held on purpose
)

// hubError is a hub that answers and says no.
type hubError struct {
	status int
	text   string
}

func (e *hubError) Error() string { return fmt.Sprintf("the hub answered %d: %s", e.status, e.text) }

// final reports whether asking again cannot help.
func (e *hubError) final() bool {
	return e.status >= http.StatusBadRequest && e.status < http.StatusInternalServerError && e.status != http.StatusTooManyRequests
}

// direct is a client for single requests to the hub's listener.
func (a *agent) direct(cfg *tls.Config) *http.Client {
	return &http.Client{Timeout: callTimeout, Transport: &http.Transport{Proxy: a.proxy,
		TLSClientConfig: cfg, TLSHandshakeTimeout: tlsTimeout}}
}

// proxyFor is the proxy that was named, or the environment's (HTTPS_PROXY, NO_PROXY).
func proxyFor(named string) (link.Proxy, error) {
	if named == "" {
		return http.ProxyFromEnvironment, nil
	}
	u, err := url.Parse(named)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
		return nil, errors.New("the proxy's address must look like http://HOST:PORT") // not quoted: it may hold a password
	}
	return http.ProxyURL(u), nil
}

// call posts JSON and reads JSON; out may be nil.
func call(ctx context.Context, c *http.Client, address string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= http.StatusMultipleChoices:
		return &hubError{resp.StatusCode, string(answer[:min(len(answer), maxErrText)])}
	case len(answer) > maxAnswer:
		return errors.New("the hub's answer is too large")
	case out == nil:
		return nil
	}
	return json.Unmarshal(answer, out)
}

// Pauses between tries, with jitter so that a fleet does not come back all at once.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 10 * time.Second
)

type backoff struct{ next time.Duration }

func newBackoff() *backoff { return &backoff{firstPause} }

// wait pauses, longer each time; it fails when ctx ends first.
func (b *backoff) wait(ctx context.Context) error {
	pause := b.next/2 + rand.N(b.next)
	b.next = min(2*b.next, longestPause)
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
