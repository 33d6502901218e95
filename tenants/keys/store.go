package keys

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
)

// Store reads and touches keys in PostgreSQL, across organizations: a gateway does not know whose a key is before.
type Store struct {
	db *db.DB
}

// NewStore makes the Authenticator's source.
func NewStore(d *db.DB) *Store { return &Store{db: d} }

// Lookup implements Source.
func (s *Store) Lookup(ctx context.Context, hashes []Hash) (records []Record, err error) {
	list := make([][]byte, len(hashes))
	for i := range hashes {
		list[i] = hashes[i][:]
	}
	err = s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).LookupKeys(ctx, list)
		records = make([]Record, len(rows))
		for i, r := range rows {
			records[i] = recordOf(r)
		}
		return err
	})
	return records, err
}

func recordOf(r q.LookupKeysRow) Record {
	return Record{
		Hash: Hash(r.Hash),
		Principal: Principal{Org: r.OrgID, Project: r.ProjectID, Key: r.ID, PriceBook: r.PriceBook, TimeZone: r.TimeZone,
			FailurePolicy: r.FailurePolicy, RPM: number(r.Rpm), TPM: number(r.Tpm), Concurrency: number(r.Concurrency),
			Suspended: r.SuspendedAt != nil},
		ExpiresAt: moment(r.ExpiresAt), RevokedAt: moment(r.RevokedAt), Archived: r.ArchivedAt != nil, LastUsed: moment(r.LastUsedAt),
	}
}

// Touch implements Source. It may be lost in a power cut: it is a convenience for people.
func (s *Store) Touch(ctx context.Context, uses []Use) error {
	arg := q.TouchKeysParams{MinGapSeconds: int64(touchGap / time.Second)}
	for _, u := range uses {
		arg.Orgs = append(arg.Orgs, u.Org)
		arg.Keys = append(arg.Keys, u.Key)
		arg.Used = append(arg.Used, u.At)
	}
	return s.db.InTx(ctx, db.System().Relaxed(), func(tx pgx.Tx) error { return q.New(tx).TouchKeys(ctx, arg) })
}

func moment(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func number[N int32 | int64](n *N) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

var _ Source = (*Store)(nil)
