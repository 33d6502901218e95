package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"millrace/cmd/millrace/trial"
	"millrace/cmd/millrace/up"
)

// millrace is a running `up`, and how many of our requests it should have booked.
type millrace struct {
	up.Ready
	sent int // requests that were answered whole
}

// Limits of asking.
const (
	bookPoll  = 10 * time.Millisecond
	bookLimit = 2 * time.Minute // for the rater to catch up
	askLimit  = 30 * time.Second
	maxPage   = 16 << 20 // bytes
)

// settle waits until everything that was sent is in the ledger, so that no work of this part is left to the next one.
func (m *millrace) settle(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, bookLimit)
	defer cancel()
	for {
		n, err := m.rated(ctx)
		if err != nil {
			return 0, err
		}
		if n >= m.sent {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d requests are in the ledger: %w", n, m.sent, ctx.Err())
		case <-time.After(bookPoll):
		}
	}
}

// ratedMetric counts the events that the rater has booked.
const ratedMetric = "millrace_rater_events_total "

func (m *millrace) rated(ctx context.Context) (int, error) {
	page, err := get(ctx, m.MetricsURL)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(page)) {
		if text, ok := strings.CutPrefix(line, ratedMetric); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return int(n), err
		}
	}
	return 0, fmt.Errorf("%s has no %s", m.MetricsURL, strings.TrimSpace(ratedMetric))
}

// booked asks the control API how many requests the books hold, over all models, and how many of them failed.
func (m *millrace) booked(ctx context.Context) (requests, failed int, err error) {
	var report struct {
		Data []struct {
			Requests int `json:"requests"`
			Errors   int `json:"errors"`
		} `json:"data"`
	}
	control := trial.Control{URL: m.URL, Token: m.AdminToken}
	if err := control.Do(ctx, http.MethodGet, "/usage?step=total", nil, &report); err != nil {
		return 0, 0, err
	}
	for _, row := range report.Data {
		requests += row.Requests
		failed += row.Errors
	}
	return requests, failed, nil
}

// profile saves a CPU profile of Millrace over whole seconds.
func (m *millrace) profile(ctx context.Context, length time.Duration, dir, name string) error {
	u, err := url.Parse(m.MetricsURL)
	if err != nil {
		return err
	}
	u.Path, u.RawQuery = "/debug/pprof/profile", fmt.Sprintf("seconds=%.0f", length.Seconds())
	profile, err := get(ctx, u.String())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), profile, 0o600)
}

func get(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPage))
}
