package rate

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/db"
	"millrace/db/q"
)

// The mark says beside the log how far it was rated. The position itself is in the database, with what it stands for; so
// a database that is behind the mark is an older copy: a backup that was restored, or a standby that had not got it all.
const (
	markBucket   = "RATER"
	markInterval = time.Second
	markTimeout  = 5 * time.Second
)

type mark struct {
	js  jetstream.JetStream
	log *slog.Logger

	mu      sync.Mutex
	newest  position // committed, as far as this process knows
	written position
}

// reach notes a position that is committed.
func (m *mark) reach(p position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest = p
}

// reached is the newest position noted in this process.
func (m *mark) reached() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest.seq
}

// run writes the mark, now and then: being late only makes it blind to the last second.
func (m *mark) run(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, markInterval)
		m.write(context.WithoutCancel(ctx)) // the last time too
	}
}

func (m *mark) write(ctx context.Context) {
	m.mu.Lock()
	now, same := m.newest, m.newest == m.written
	m.mu.Unlock()
	if same || now.incarnation == "" {
		return
	}
	if err := m.put(ctx, now); err != nil {
		m.log.Warn("how far the log is rated was not noted beside it", "err", err)
	}
}

func (m *mark) put(ctx context.Context, now position) error {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	kv, err := m.bucket(ctx)
	if err == nil {
		_, err = kv.Put(ctx, now.incarnation, strconv.AppendUint(nil, now.seq, 10))
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.written = now
	m.mu.Unlock()
	return nil
}

func (m *mark) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := m.js.KeyValue(ctx, markBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = m.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: markBucket, History: 1, Storage: jetstream.FileStorage,
			Description: "how far each incarnation of the usage log was rated"})
	}
	return kv, err
}

// of gives the mark of an incarnation, or what this process knows better; 0 = it was never rated.
func (m *mark) of(ctx context.Context, incarnation string) (seq uint64, err error) {
	kv, err := m.bucket(ctx)
	if err != nil {
		return 0, err
	}
	entry, err := kv.Get(ctx, incarnation)
	switch {
	case err == nil:
		seq, err = strconv.ParseUint(string(entry.Value()), 10, 64)
	case errors.Is(err, jetstream.ErrKeyNotFound):
		err = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest.incarnation == incarnation {
		seq = max(seq, m.newest.seq)
	}
	return seq, err
}

// checkAge voids all epochs when the database is an older copy: it knows less of their money than their gateways.
func (r *Rater) checkAge(ctx context.Context, pos position) error {
	marked, err := r.mark.of(ctx, pos.incarnation)
	if err != nil {
		return err
	}
	if pos.seq >= marked {
		return nil
	}
	n, err := VoidAll(ctx, r.cfg.DB)
	if err != nil {
		return err
	}
	r.cfg.Logger.Error("the database is an older copy: gateways begin anew, and what it has forgotten is rated again",
		"rated_to", pos.seq, "was_rated_to", marked, "epochs_voided", n)
	r.mark.reach(pos)
	return r.mark.put(ctx, pos) // or the next look would void the new epochs too
}

// VoidAll ends every gateway epoch in a database that replaced a newer one: a standby that was promoted, a backup that was
// restored. Gateways notice and begin anew; what they still say is charged as far as the budgets have room.
func VoidAll(ctx context.Context, d *db.DB) (epochs int64, err error) {
	err = d.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		epochs, err = q.New(tx).VoidEpochs(ctx)
		return err
	})
	return epochs, err
}
