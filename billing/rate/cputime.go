package rate

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuUse is CPU time spent so far, in user and system mode.
type cpuUse struct{ process, postgres time.Duration }

// clockTick is the unit of /proc's CPU times, the same on every Linux.
const clockTick = 10 * time.Millisecond

// cpuTimes reads this process's CPU time, and that of the PostgreSQL server on this machine: the sessions of the named
// database and the server's own helpers. Where there is no /proc, or the server is elsewhere, the second is 0.
func cpuTimes(database string) cpuUse {
	var u cpuUse
	var own unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &own) == nil {
		u.process = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	servers := map[string]bool{}
	helpers := map[string]time.Duration{} // by server
	for _, dir := range dirs {
		title, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !bytes.HasPrefix(title, []byte("postgres: ")) {
			continue
		}
		server, spent := cpuOf(dir)
		switch {
		case databaseOf(string(title)) == database:
			u.postgres += spent
			servers[server] = true
		case bytes.Contains(title, []byte("writer")), bytes.Contains(title, []byte("checkpointer")):
			helpers[server] += spent
		}
	}
	for server := range servers {
		u.postgres += helpers[server]
	}
	return u
}

// databaseOf is the database of a session, by its process's title: "postgres: user database client state", with the name of
// the cluster before the user when it has one. "" for the server's own processes.
func databaseOf(title string) string {
	words := strings.Fields(strings.TrimPrefix(title, "postgres: "))
	if len(words) > 0 && strings.HasSuffix(words[0], ":") {
		words = words[1:]
	}
	if len(words) < 4 {
		return ""
	}
	return words[1]
}

// cpuOf reads /proc/PID/stat: "pid (name) state ppid …", fields 14 and 15 are CPU ticks.
func cpuOf(dir string) (parent string, spent time.Duration) {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "", 0 // it has ended
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return "", 0
	}
	for _, ticks := range fields[11:13] {
		if n, err := strconv.ParseInt(string(ticks), 10, 64); err == nil {
			spent += time.Duration(n) * clockTick
		}
	}
	return string(fields[1]), spent
}
