package pg

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
	"golang.org/x/sys/unix"
)

// downloadTimeout bounds one download of about 15 MB, on a slow line too.
const downloadTimeout = 4 * time.Minute

// downloadable is the build fetched for each major version.
var downloadable = map[int]string{15: "15.19.0", 16: "16.15.0", 17: "17.11.0", 18: "18.6.0"}

// newest is what a new cluster gets when nothing is installed.
const newest = 18

// downloaded gives the cached server of a major version (0 = the newest), fetching it first when needed. Processes that
// come at once wait for one download.
func downloaded(ctx context.Context, major int, cache string, user account, progress func(int64, int64, string)) (binaries, error) {
	if major == 0 {
		major = newest
	}
	version, ok := downloadable[major]
	if !ok {
		return binaries{}, fmt.Errorf("no download for PostgreSQL %d", major)
	}
	cache, err := cacheDir(cache, user)
	if err != nil {
		return binaries{}, err
	}
	home := filepath.Join(cache, "postgres")
	if err := os.MkdirAll(home, 0o755); err != nil {
		return binaries{}, fmt.Errorf("cache folder: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(home, "lock"))
	if err != nil {
		return binaries{}, err
	}
	defer unlock()
	dir := filepath.Join(home, version)
	if _, err := os.Stat(dir); err != nil {
		if err := fetch(ctx, version, dir, progress); err != nil {
			return binaries{}, fmt.Errorf("download PostgreSQL %s: %w", version, err)
		}
	}
	return inspect(ctx, filepath.Join(dir, "bin"), user)
}

// fetch downloads and unpacks a server into dir, which appears whole or not at all.
func fetch(ctx context.Context, version, dir string, progress func(int64, int64, string)) error {
	what := "downloading PostgreSQL " + version
	progress(0, 0, what)
	work, err := os.MkdirTemp(filepath.Dir(dir), ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	defer watchDownloads(ctx, func(done, total int64) { progress(done, total, what) })()
	unpacked := filepath.Join(work, "unpacked")
	port, err := choosePort(0, 0)
	if err != nil {
		return err
	}
	defer removeNew(filepath.Join(os.TempDir(), "embedded_postgres_log*"))()
	// Of the library we want the download and the unpacking only, which it does not offer alone. A data path that ends in
	// "." cannot be removed, so its Start ends right after unpacking, before it would run initdb its own way.
	err = embedded.NewDatabase(embedded.DefaultConfig().Version(embedded.PostgresVersion(version)).Port(uint32(port)).
		CachePath(filepath.Join(work, "archive")).RuntimePath(filepath.Join(work, "run")).BinariesPath(unpacked).
		DataPath(filepath.Join(work, "data") + "/.").Logger(io.Discard)).Start()
	if err != nil && !strings.Contains(err.Error(), "unable to clean up data directory") {
		return err
	}
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	return os.Rename(unpacked, dir)
}

// removeNew notes the files of a pattern; the function returned removes those that came since: the library leaves its log.
func removeNew(pattern string) func() {
	before, _ := filepath.Glob(pattern)
	return func() {
		after, _ := filepath.Glob(pattern)
		for _, path := range after {
			if !slices.Contains(before, path) {
				_ = os.Remove(path)
			}
		}
	}
}

// watchDownloads makes the default HTTP client, which the library uses, obey ctx and report its bytes. The function
// returned puts the client back. Nothing else in Millrace uses the default client.
func watchDownloads(ctx context.Context, report func(done, total int64)) (restore func()) {
	before := http.DefaultClient.Transport
	next := before
	if next == nil {
		next = http.DefaultTransport
	}
	http.DefaultClient.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r.WithContext(ctx))
		if err == nil && resp.StatusCode == http.StatusOK && resp.ContentLength > 0 {
			resp.Body = &counted{ReadCloser: resp.Body, total: resp.ContentLength, report: report}
		}
		return resp, err
	})
	return func() { http.DefaultClient.Transport = before }
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// counted reports how much of a body has been read.
type counted struct {
	io.ReadCloser
	done, total int64
	report      func(done, total int64)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.done += int64(n)
	c.report(c.done, c.total)
	return n, err
}

// lockPoll is how often a taken lock is tried again.
const lockPoll = 50 * time.Millisecond

// lockFile waits for an exclusive lock that the kernel drops when this process dies.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("waiting for %s: %w", path, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}
