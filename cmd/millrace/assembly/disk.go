package assembly

import "golang.org/x/sys/unix"

// DiskFree gives a function that tells how many bytes an unprivileged process may still write below path.
func DiskFree(path string) func() (uint64, error) {
	return func() (uint64, error) {
		var s unix.Statfs_t
		if err := unix.Statfs(path, &s); err != nil {
			return 0, err
		}
		return s.Bavail * uint64(s.Bsize), nil
	}
}
