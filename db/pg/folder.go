package pg

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// oldestMajor is the oldest PostgreSQL whose SQL Millrace speaks.
const oldestMajor = 15

// unixPathMax is what fits sockaddr_un.sun_path on Linux, less the final NUL.
const unixPathMax = 107

// folder is the place on disk: root/data, root/socket, root/postgres.json.
type folder struct {
	root string
	user account
	// reachable: the server's user can walk down to root by path. When it cannot, the server is handed the opened data
	// folder instead and has no socket.
	reachable bool
}

func (f folder) data() string      { return filepath.Join(f.root, "data") }
func (f folder) making() string    { return filepath.Join(f.root, "data.making") }
func (f folder) loginFile() string { return filepath.Join(f.root, "postgres.json") }
func (f folder) hbaFile() string   { return filepath.Join(f.data(), "pg_hba.conf") }

// socketDir is "" where a socket's path would be too long for the system.
func (f folder) socketDir() string {
	dir := filepath.Join(f.root, "socket")
	if len(dir)+len("/.s.PGSQL.65535.lock") > unixPathMax || strings.ContainsAny(dir, ",\"") {
		return ""
	}
	return dir
}

func (f folder) socketExists(port int) bool {
	_, err := os.Stat(filepath.Join(f.socketDir(), ".s.PGSQL."+strconv.Itoa(port)))
	return err == nil
}

// openFolder makes the folder and decides who runs the server.
func openFolder(root string) (folder, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return folder{}, err
	}
	// 0711: the server's user must pass through it; only the owner can list it.
	if err := os.MkdirAll(root, 0o711); err != nil {
		return folder{}, fmt.Errorf("data folder: %w", err)
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return folder{}, fmt.Errorf("data folder: %w", err)
	}
	f := folder{root: root}
	if f.user, err = accountFor(f.data()); err != nil {
		return folder{}, err
	}
	f.reachable = f.user.canReach(root)
	return f, nil
}

// major is the version the cluster was made by, 0 when there is none yet.
func (f folder) major() (int, error) {
	b, err := os.ReadFile(filepath.Join(f.data(), "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		if entries, err := os.ReadDir(f.data()); err == nil && len(entries) > 0 {
			return 0, fmt.Errorf("%s holds files but no PG_VERSION: it is not a PostgreSQL cluster; move it away", f.data())
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("data folder: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("%s: unreadable PG_VERSION %q", f.data(), b)
	}
	if major < oldestMajor {
		return 0, fmt.Errorf("%s was made by PostgreSQL %d; Millrace needs %d or newer (pg_upgrade can convert it)", f.data(), major, oldestMajor)
	}
	return major, nil
}

// login is what postgres.json keeps.
type login struct {
	Password string `json:"password"`
	Port     int    `json:"port"` // where it listened last
}

func (f folder) readLogin() (login, error) {
	var l login
	b, err := os.ReadFile(f.loginFile())
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(b, &l); err != nil || l.Password == "" {
		return l, fmt.Errorf("%s is damaged: delete it, and the next start makes a new password", f.loginFile())
	}
	return l, nil
}

// writeLogin replaces postgres.json as a whole, so that a kill leaves the old one or the new one.
func (f folder) writeLogin(l login) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	tmp := f.loginFile() + ".tmp"
	file, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("keep the database login: %w", err)
	}
	_, werr := file.Write(b)
	if err := errors.Join(werr, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("keep the database login: %w", err)
	}
	return os.Rename(tmp, f.loginFile())
}

// ownerOf is the user a path belongs to; ok is false when it does not exist.
func ownerOf(path string) (uid, gid uint32, ok bool) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, 0, false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return st.Uid, st.Gid, true
}
