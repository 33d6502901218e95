package keys

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Revoke ends a key for good. Gateways refuse it at once where the notice arrives, within HardTTL where it does not.
// Revoking twice is no error.
func (s *Service) Revoke(ctx context.Context, by tenants.Actor, org, id ids.ID) (Key, error) {
	now := s.now()
	return s.change(ctx, by, org, id, "key.revoke", func(rows *q.Queries, old q.ApiKey) (q.ApiKey, error) {
		if old.RevokedAt != nil {
			return old, nil
		}
		return rows.SetKeyRevoked(ctx, q.SetKeyRevokedParams{OrgID: org, ID: id, RevokedAt: &now})
	})
}

// Change names what to change on a key; nil leaves a field as it is.
type Change struct {
	Name      *string
	ExpiresAt *time.Time // the zero time = never; the past ends it now
	Limits    *Limits
}

// Update changes a key's name, expiry and limits. A revoked key is a Conflict.
func (s *Service) Update(ctx context.Context, by tenants.Actor, org, id ids.ID, c Change) (Key, error) {
	return s.change(ctx, by, org, id, "key.update", func(rows *q.Queries, old q.ApiKey) (q.ApiKey, error) {
		if old.RevokedAt != nil {
			return q.ApiKey{}, fault.New(fault.Conflict, "The key is revoked. Make a new one.").WithCode("key_revoked")
		}
		next := q.UpdateKeyParams{OrgID: org, ID: id, Name: old.Name, ExpiresAt: old.ExpiresAt, Rpm: old.Rpm, Tpm: old.Tpm, Concurrency: old.Concurrency}
		var err error
		if c.Name != nil {
			if next.Name, err = tenants.Name("name", *c.Name, maxName); err != nil {
				return q.ApiKey{}, err
			}
		}
		if c.ExpiresAt != nil {
			if c.ExpiresAt.After(clock.Latest) {
				return q.ApiKey{}, endsTooLate()
			}
			next.ExpiresAt = nil
			if at := c.ExpiresAt.UTC().Truncate(time.Microsecond); !c.ExpiresAt.IsZero() {
				next.ExpiresAt = &at
			}
		}
		if c.Limits != nil {
			if next.Rpm, next.Tpm, next.Concurrency, err = c.Limits.columns(); err != nil {
				return q.ApiKey{}, err
			}
		}
		return rows.UpdateKey(ctx, next)
	})
}

// change locks a key, changes it, audits it and tells gateways.
func (s *Service) change(ctx context.Context, by tenants.Actor, org, id ids.ID, action string, change func(*q.Queries, q.ApiKey) (q.ApiKey, error)) (k Key, err error) {
	if err := by.Require(tenants.KeysManage, org); err != nil {
		return Key{}, err
	}
	err = s.inOrg(ctx, org, func(tx pgx.Tx, rows *q.Queries) error {
		old, err := rows.LockKey(ctx, q.LockKeyParams{OrgID: org, ID: id})
		if err != nil {
			return tenants.Found(err, "key")
		}
		row, err := change(rows, old)
		if err != nil {
			return err
		}
		k = keyOf(row)
		return s.audit(ctx, tx, by, k, action, keyOf(old), k)
	})
	if err != nil {
		return Key{}, err
	}
	s.notice(ctx, k)
	return k, nil
}

// columns checks limits and gives them as columns: NULL = no limit.
func (l Limits) columns() (rpm *int32, tpm *int64, concurrency *int32, err error) {
	for _, f := range []struct {
		param string
		value int64
		max   int64
	}{{"limits.rpm", l.RPM, math.MaxInt32}, {"limits.tpm", l.TPM, math.MaxInt64}, {"limits.concurrency", l.Concurrency, math.MaxInt32}} {
		if f.value < 0 || f.value > f.max {
			return nil, nil, nil, fault.New(fault.Invalid, "A limit is between 0 (none) and %d.", f.max).WithParam(f.param)
		}
	}
	if n := int32(l.RPM); n > 0 {
		rpm = &n
	}
	if l.TPM > 0 {
		tpm = &l.TPM
	}
	if n := int32(l.Concurrency); n > 0 {
		concurrency = &n
	}
	return rpm, tpm, concurrency, nil
}
