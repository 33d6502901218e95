package pg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// accessRules is the whole of pg_hba.conf: passwords only, this machine only. The superuser has no password, so nobody
// can log in as him.
const accessRules = `# Written by Millrace at every start.
local all all scram-sha-256
host  all all 127.0.0.1/32 scram-sha-256
`

// ensureCluster gives the login of the folder's cluster, making the cluster when there is none. A new cluster is made
// aside and renamed when complete, so a kill half-way leaves nothing that counts.
func (f folder) ensureCluster(ctx context.Context, bins binaries, c Config) (login, error) {
	if _, err := os.Stat(filepath.Join(f.data(), "PG_VERSION")); err == nil {
		return f.existingLogin(ctx, bins)
	}
	c.Progress(0, 0, "making a database with PostgreSQL "+bins.version)
	l := login{Password: rand.Text()}
	if err := os.Mkdir(f.making(), 0o700); err != nil {
		return l, fmt.Errorf("make the cluster: %w", err)
	}
	if err := f.user.own(f.making()); err != nil {
		return l, fmt.Errorf("give the cluster to %s: %w", f.user.name, err)
	}
	if err := f.initdb(ctx, bins, c.Fast); err != nil {
		return l, fmt.Errorf("initdb: %w", err)
	}
	// A single-user server has no network and needs no login.
	sql := append([]string{
		"CREATE ROLE " + Role + " LOGIN NOSUPERUSER CREATEROLE PASSWORD '" + l.Password + "'",
		"CREATE DATABASE " + Role + " OWNER " + Role,
	}, c.InitSQL...)
	if err := f.singleUser(ctx, bins, f.making(), sql); err != nil {
		return l, fmt.Errorf("make the cluster's login: %w", err)
	}
	if err := f.writeLogin(l); err != nil {
		return l, err
	}
	if err := os.Rename(f.making(), f.data()); err != nil {
		return l, fmt.Errorf("make the cluster: %w", err)
	}
	return l, syncDir(f.root)
}

// existingLogin reads postgres.json; when it is missing (a cluster restored from a copy) the role gets a new password.
func (f folder) existingLogin(ctx context.Context, bins binaries) (login, error) {
	l, err := f.readLogin()
	if !errors.Is(err, os.ErrNotExist) {
		return l, err
	}
	l = login{Password: rand.Text()}
	sql := []string{"ALTER ROLE " + Role + " PASSWORD '" + l.Password + "'"}
	if err := f.singleUser(ctx, bins, f.data(), sql); err != nil {
		return l, fmt.Errorf("set a new database password: %w", err)
	}
	return l, f.writeLogin(l)
}

// initdb makes the cluster: UTF-8, the C locale (an index never breaks when the system's locales change), checksums.
func (f folder) initdb(ctx context.Context, bins binaries, fast bool) error {
	args := []string{"--username=postgres", "--encoding=UTF8", "--no-locale", "--data-checksums",
		"--auth-local=reject", "--auth-host=reject", "--no-instructions"}
	if fast {
		args = append(args, "--no-sync")
	}
	cmd := f.command(bins.path("initdb"), args...)
	name, opened, err := f.giveData(cmd, f.making())
	if err != nil {
		return err
	}
	defer opened.Close()
	cmd.Args = append(cmd.Args, "-D", name)
	return f.runTool(ctx, cmd, newTail(nil))
}

// singleUser runs statements as the superuser on a cluster that no server has open.
func (f folder) singleUser(ctx context.Context, bins binaries, dir string, sql []string) error {
	cmd := f.command(bins.path("postgres"), "--single")
	name, opened, err := f.giveData(cmd, dir)
	if err != nil {
		return err
	}
	defer opened.Close()
	cmd.Args = append(cmd.Args, "-D", name, "-c", "exit_on_error=on", "-c", "log_statement=none",
		"-c", "log_min_error_statement=panic", "postgres")
	cmd.Stdin = strings.NewReader(strings.Join(sql, "\n") + "\n")
	return f.runTool(ctx, cmd, newTail(nil))
}

// writeAccessRules replaces pg_hba.conf.
func (f folder) writeAccessRules() error {
	if err := os.WriteFile(f.hbaFile(), []byte(accessRules), 0o600); err != nil {
		return fmt.Errorf("access rules: %w", err)
	}
	return f.user.own(f.hbaFile())
}

// syncDir makes a rename inside dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
