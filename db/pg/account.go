package pg

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the operating-system user that initdb and postgres run as. PostgreSQL refuses to run as root, so root
// steps down to postgres or nobody; anybody else runs it as himself.
type account struct {
	stepDown bool
	uid, gid uint32
	name     string
}

// accountFor picks the user: the owner of an existing cluster, else postgres, else nobody.
func accountFor(data string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	if uid, gid, ok := ownerOf(data); ok && uid != 0 {
		return account{stepDown: true, uid: uid, gid: gid, name: "uid " + strconv.Itoa(int(uid))}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return account{stepDown: true, uid: uint32(uid), gid: uint32(gid), name: name}, nil
		}
	}
	return account{}, fmt.Errorf("PostgreSQL does not run as root and this machine has no user postgres or nobody: run as an ordinary user, or give DATABASE_URL to millrace serve")
}

// credential is nil when no step down is needed.
func (a account) credential() *syscall.Credential {
	if !a.stepDown {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// own gives a path to the account.
func (a account) own(path string) error {
	if !a.stepDown {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// canReach reports whether the account may pass through every folder from / down to path.
func (a account) canReach(path string) bool {
	if !a.stepDown {
		return true
	}
	for {
		fi, err := os.Stat(path)
		if err != nil {
			return false
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return false
		}
		pass := uint32(0o001)
		switch {
		case st.Uid == a.uid:
			pass = 0o100
		case st.Gid == a.gid:
			pass = 0o010
		}
		if st.Mode&pass == 0 {
			return false
		}
		parent := filepath.Dir(path)
		if parent == path {
			return true
		}
		path = parent
	}
}
