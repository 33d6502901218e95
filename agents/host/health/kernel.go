package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// KernelLog is where the kernel's messages are read, from the boot on.
const KernelLog = "/dev/kmsg"

// Times and sizes of reading the kernel's log.
const (
	recordBytes = 8 << 10
	kernelPoll  = 500 * time.Millisecond
)

// Follow reads the kernel's log, old messages first, and calls fn with every Xid and its age, until ctx ends. An error
// says that it cannot be read here, as in most containers.
func Follow(ctx context.Context, path string, fn func(x Xid, at time.Time)) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the kernel's log: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	defer func() { _ = unix.Close(fd) }()
	boot := bootTime()
	record := make([]byte, recordBytes)
	for {
		n, err := unix.Read(fd, record)
		switch {
		case err == nil && n > 0:
			if x, ok := ParseXid(string(record[:n])); ok {
				fn(x, boot.Add(stamp(string(record[:n]))))
			}
			continue
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // overwritten before it was read: go on with what is left
			continue
		case err == nil: // a plain file's end, in tests
		case !errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("the kernel's log: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(kernelPoll):
		}
	}
}

// stamp is a record's time after boot: "6,1234,987654321,-;text", in microseconds.
func stamp(record string) time.Duration {
	head, _, _ := strings.Cut(record, ";")
	f := strings.Split(head, ",")
	if len(f) < 3 {
		return 0
	}
	us, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || us < 0 || us > int64(100*365*24*time.Hour/time.Microsecond) {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// bootTime is when the machine started, now when it does not tell.
func bootTime() time.Time {
	f, err := os.Open("/proc/uptime")
	if err != nil {
		return time.Now()
	}
	defer f.Close()
	said, _ := io.ReadAll(io.LimitReader(f, 100))
	first, _, _ := strings.Cut(string(said), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(seconds * float64(time.Second)))
}
