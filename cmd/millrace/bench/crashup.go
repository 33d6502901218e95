package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"millrace/cmd/millrace/trial"
	"millrace/cmd/millrace/up"
)

// Moments of a kill of `up`.
const (
	upReadyLimit = 2 * time.Minute
	upLifeUsual  = 1500 * time.Millisecond // longest life under load
	upLifeLong   = 6 * time.Second         // least life of one in longEvery: long streams write their progress after 5 s
	longEvery    = 5
	startEvery   = 6 // one in so many kills comes while `up` is starting
	startLongest = 2 * time.Second
)

// crashUp kills `up` with everything in it.
func crashUp(ctx context.Context, r *crashRun) (err error) {
	c := trial.UpConfig{Binary: r.cfg.Binary, Data: filepath.Join(r.dir, "data"), ReadyFile: filepath.Join(r.dir, "ready.json"), Log: r.log,
		Args: []string{"--drain", "1s"}}
	u, err := startUp(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopUp(u)) }()
	r.load = &crashLoad{book: r.book, key: u.Ready.APIKey, model: u.Ready.Models[0]}
	for n := 1; n <= r.kills; n++ {
		if n%startEvery == 0 {
			u, err = r.killStarting(ctx, u, c)
		} else {
			u, err = r.killUnderLoad(ctx, u, c, n)
		}
		if err != nil {
			return err
		}
		if err := r.checkUp(ctx, c.Data); err != nil {
			return fmt.Errorf("after kill %d: %w", n, err)
		}
		if r.killed = n; len(r.wrong) > 0 {
			return nil
		}
	}
	return nil
}

// killUnderLoad lets the clients ask for a while, kills, and starts anew.
func (r *crashRun) killUnderLoad(ctx context.Context, u *trial.Up, c trial.UpConfig, n int) (*trial.Up, error) {
	life := r.moment(upLifeUsual)
	if n%longEvery == 0 {
		life += upLifeLong
	}
	r.load.aim(u.Ready.URL)
	r.load.start(r.cfg.Seed + uint64(n))
	slept := wait(ctx, life)
	killed := u.Kill()
	r.load.aim()
	r.load.pause()
	if err := errors.Join(slept, killed); err != nil {
		return u, err
	}
	return startUp(ctx, c)
}

// killStarting kills once under load's silence and again while `up` starts.
func (r *crashRun) killStarting(ctx context.Context, u *trial.Up, c trial.UpConfig) (*trial.Up, error) {
	if err := u.Kill(); err != nil {
		return u, err
	}
	u, err := trial.LaunchUp(c)
	if err != nil {
		return u, err
	}
	if err := errors.Join(wait(ctx, r.moment(startLongest)), u.Kill()); err != nil {
		return u, err
	}
	return startUp(ctx, c)
}

func startUp(ctx context.Context, c trial.UpConfig) (*trial.Up, error) {
	ctx, cancel := context.WithTimeout(ctx, upReadyLimit)
	defer cancel()
	return trial.StartUp(ctx, c)
}

func stopUp(u *trial.Up) error {
	if u == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), upReadyLimit)
	defer cancel()
	if code, err := u.Stop(ctx); err != nil || code > 0 {
		return errors.Join(fmt.Errorf("`up` ended with %d; it said last:\n%s", code, u.Said()), err)
	}
	return nil
}

// checkUp looks at the books beside the running `up`.
func (r *crashRun) checkUp(ctx context.Context, data string) (err error) {
	stores, err := up.OpenStores(ctx, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	if err := awaitFence(ctx, stores.DB, 1); err != nil {
		return err
	}
	return r.check(ctx, stores.DB, stores.Bus)
}
