package pg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
)

// versionTimeout bounds `postgres --version`.
const versionTimeout = 10 * time.Second

// debianBins is where Debian and Ubuntu keep the servers, one folder a major version. A variable for tests.
var debianBins = "/usr/lib/postgresql/*/bin"

// binaries is one installed server.
type binaries struct {
	dir     string
	version string // "15.19"
	major   int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// findBinaries looks for a server of the given major version (0 = any that is new enough): $PG_BIN, then the system's
// packages, newest first, then a download.
func findBinaries(ctx context.Context, major int, cache string, user account, progress func(int64, int64, string)) (binaries, error) {
	var refused []string
	if dir := os.Getenv("PG_BIN"); dir != "" {
		b, err := inspect(ctx, dir, user)
		switch {
		case err != nil:
			return binaries{}, fmt.Errorf("PG_BIN=%s: %w", dir, err)
		case major == 0 || b.major == major:
			return b, nil
		}
		refused = append(refused, fmt.Sprintf("PG_BIN is version %d", b.major))
	}
	installed, why := systemBinaries(ctx, user)
	refused = append(refused, why...)
	for _, b := range installed {
		if major == 0 || b.major == major {
			return b, nil
		}
		refused = append(refused, fmt.Sprintf("%s is version %d", b.dir, b.major))
	}
	b, err := downloaded(ctx, major, cache, user, progress)
	if err == nil {
		return b, nil
	}
	want := fmt.Sprintf("%d or newer", oldestMajor)
	if major != 0 {
		want = fmt.Sprintf("%d, the version of the data folder", major)
	}
	if len(refused) > 0 {
		err = fmt.Errorf("%w (looked at: %s)", err, strings.Join(refused, "; "))
	}
	return binaries{}, fmt.Errorf("no PostgreSQL %s: install the server package (postgresql), or point PG_BIN at a folder with initdb and postgres: %w", want, err)
}

// systemBinaries lists usable servers of the system's packages, newest first, and why others were passed over.
func systemBinaries(ctx context.Context, user account) (found []binaries, refused []string) {
	dirs, _ := filepath.Glob(debianBins)
	if pgConfig, err := exec.LookPath("pg_config"); err == nil {
		ctx, cancel := context.WithTimeout(ctx, versionTimeout)
		defer cancel()
		if out, err := exec.CommandContext(ctx, pgConfig, "--bindir").Output(); err == nil {
			dirs = append(dirs, strings.TrimSpace(string(out)))
		}
	}
	seen := map[string]bool{}
	for _, dir := range dirs {
		if seen[dir] {
			continue
		}
		seen[dir] = true
		b, err := inspect(ctx, dir, user)
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s: %v", dir, err))
			continue
		}
		found = append(found, b)
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].major > found[j].major })
	return found, refused
}

var versionLine = regexp.MustCompile(`^postgres \(PostgreSQL\) ((\d+)\S*)`)

// inspect checks that a folder holds a server we can run.
func inspect(ctx context.Context, dir string, user account) (binaries, error) {
	for _, name := range []string{"initdb", "postgres"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode()&0o111 == 0 {
			return binaries{}, fmt.Errorf("has no program %s", name)
		}
	}
	if !user.canReach(dir) {
		return binaries{}, fmt.Errorf("cannot be reached by %s, which runs the server", user.name)
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("postgres --version: %w", err)
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return binaries{}, fmt.Errorf("postgres --version says %q", out)
	}
	major, err := strconv.Atoi(m[2])
	if err != nil {
		return binaries{}, err
	}
	if major < oldestMajor {
		return binaries{}, fmt.Errorf("version %s is older than %d", m[1], oldestMajor)
	}
	return binaries{dir: dir, version: m[1], major: major}, nil
}

// cacheDir is where downloaded servers live. Root's own cache folder cannot be reached by the user that runs the server.
func cacheDir(configured string, user account) (string, error) {
	if configured != "" {
		return filepath.Abs(configured)
	}
	if user.stepDown {
		return "/var/cache/millrace", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", errors.Join(errors.New("no cache folder for the download (set HOME)"), err)
	}
	return filepath.Join(dir, "millrace"), nil
}
