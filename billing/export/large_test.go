package export_test

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"millrace/billing/export"
)

// heapLimit is what a large export may hold beyond what was there before: pages and row groups, whatever the range.
const heapLimit = 192 << 20

// A large export runs in memory that does not grow with it. MILLRACE_EXPORT_ROWS sets its size; docs/benchmarks.md has the
// figures of 10 million.
func TestALargeExportStaysSmall(t *testing.T) {
	rows, err := strconv.Atoi(os.Getenv("MILLRACE_EXPORT_ROWS"))
	switch {
	case err == nil:
	case os.Getenv("MILLRACE_SLOW") != "":
		rows = 1_000_000
	default:
		t.Skip("heavy")
	}
	w := newWorld(t)
	c := w.customer("large")
	const perDay = 500_000
	days := (rows + perDay - 1) / perDay
	first := now.Truncate(24*time.Hour).AddDate(0, 0, -days)
	for d := range days {
		at := first.AddDate(0, 0, d)
		w.exec("SELECT ensure_day($1)", at)
		w.exec(`INSERT INTO usage_events (org_id, day, id, project_id, key_id, model_id, price_version_id, epoch_id, txn_id, input_tokens, cached_tokens, cache_write_tokens,
			output_tokens, reasoning_tokens, image_tokens, audio_tokens, requests, charged_nano, overrun_nano, ending, status, estimated, streamed, dialect, started_at, first_token_at, ended_at)
			SELECT $1, $2::date, (lpad(to_hex((extract(epoch FROM $2::timestamptz) * 1000)::bigint + s * 100), 12, '0') || '7000' || '8' || lpad(to_hex(s), 15, '0'))::uuid,
			$3, $4, $5, $6, $6, $6, 1200 + s % 700, s % 512, 0, 150 + s % 90, 0, 0, 0, 1, 123456789 + s, 0, 'complete', 200, false, true, 'chat', $2::timestamptz + s * interval '100 ms',
			$2::timestamptz + s * interval '100 ms' + interval '210 ms', $2::timestamptz + s * interval '100 ms' + interval '2 s'
			FROM generate_series(0, $7::int - 1) s`, c.id, at, c.project, c.key, w.model, w.price, min(perDay, rows-d*perDay))
	}
	w.exec("ANALYZE usage_events")
	in := export.Query{Kind: export.Usage, From: first, To: first.AddDate(0, 0, days)}
	for _, f := range export.Formats {
		peak, stop := watchHeap(t)
		begun := time.Now()
		m, err := w.Write(t.Context(), w.root, in, f, io.Discard)
		took := time.Since(begun)
		stop()
		if err != nil || m.Total.Rows != int64(rows) {
			t.Fatalf("%s: %d rows, %v", f, m.Total.Rows, err)
		}
		t.Logf("%s: %d rows, %d MB, in %v: %.0f rows/s, at most %d MB of heap more", f, rows, m.Parts[0].Bytes>>20, took.Round(time.Millisecond),
			float64(rows)/took.Seconds(), peak.Load()>>20)
		if peak.Load() > heapLimit {
			t.Errorf("%s: %d MB of heap", f, peak.Load()>>20)
		}
	}
}

// watchHeap follows the heap until stop, from what is in use now.
func watchHeap(t *testing.T) (peak *atomic.Int64, stop func()) {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := int64(m.HeapInuse)
	peak, end, ended := &atomic.Int64{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), int64(m.HeapInuse)-before))
			}
		}
	}()
	return peak, func() { close(end); <-ended }
}
