package keys

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/tenants"
	"millrace/tenants/audit"
	"millrace/tenants/secret"
)

// Limits of keys.
const (
	maxName       = 100             // characters
	maxLive       = 1000            // keys of one organization that are neither revoked nor expired; hidden ones do not count
	maxHidden     = 200             // hidden keys of one organization that are alive
	PlaygroundTTL = 2 * time.Minute // of the hidden key that a console page calls the public gateway with: it makes one a message
)

// Service makes and changes keys. It is safe for concurrent use.
type Service struct {
	db     *db.DB
	master *seal.Master
	clock  clock.Clock
	notify tenants.Notifier
}

// New makes the service.
func New(d *db.DB, master *seal.Master, c clock.Clock, notify tenants.Notifier) *Service {
	return &Service{db: d, master: master, clock: c, notify: notify}
}

// Limits bound a key's rate; 0 = no limit.
type Limits struct {
	RPM         int64 `json:"rpm"`
	TPM         int64 `json:"tpm"`
	Concurrency int64 `json:"concurrency"`
}

// Key is a key as lists show it: never the secret.
type Key struct {
	ID         ids.ID     `json:"id"`
	Org        ids.ID     `json:"org_id"`
	Project    ids.ID     `json:"project_id"`
	Name       string     `json:"name"`
	Prefix     string     `json:"prefix"` // the first characters of the secret
	Last4      string     `json:"last4"`
	Limits     Limits     `json:"limits"`
	CreatedBy  ids.ID     `json:"created_by"` // ids.Nil = a program
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"` // to the minute

	hash []byte
}

// Status is active, expired or revoked at the moment now.
func (k Key) Status(now time.Time) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case k.ExpiresAt != nil && !now.Before(*k.ExpiresAt):
		return "expired"
	}
	return "active"
}

func keyOf(r q.ApiKey) Key {
	k := Key{ID: r.ID, Org: r.OrgID, Project: r.ProjectID, Name: r.Name, Prefix: r.Prefix, Last4: r.Last4,
		Limits:    Limits{RPM: number(r.Rpm), TPM: number(r.Tpm), Concurrency: number(r.Concurrency)},
		CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt, LastUsedAt: r.LastUsedAt, hash: r.Hash}
	if r.CreatedBy != nil {
		k.CreatedBy = *r.CreatedBy
	}
	return k
}

// NewKey describes a key to make.
type NewKey struct {
	Org, Project ids.ID
	Name         string
	ExpiresAt    time.Time // zero = never
	Limits       Limits
	// Form is an id that the caller made before: a second key by the same one is a Conflict with code form_sent. ids.Nil =
	// none.
	Form ids.ID
}

// Create makes a key. The secret is given here and never again.
func (s *Service) Create(ctx context.Context, by tenants.Actor, in NewKey) (Key, string, error) {
	if err := by.Require(tenants.KeysManage, in.Org); err != nil {
		return Key{}, "", err
	}
	return s.create(ctx, by, in, false)
}

// CreatePlayground makes a hidden key that expires after PlaygroundTTL: the console's playground calls the public gateway
// with it, by the same way and at the same price as everybody.
func (s *Service) CreatePlayground(ctx context.Context, by tenants.Actor, org, project ids.ID) (Key, string, error) {
	if err := by.Require(tenants.RequestsMake, org); err != nil {
		return Key{}, "", err
	}
	return s.create(ctx, by, NewKey{Org: org, Project: project, Name: "Playground", ExpiresAt: s.clock.Now().Add(PlaygroundTTL)}, true)
}

func (s *Service) create(ctx context.Context, by tenants.Actor, in NewKey, hidden bool) (k Key, text string, err error) {
	row, err := s.newRow(by, in, hidden)
	if err != nil {
		return Key{}, "", err
	}
	text = secret.New(secret.APIKey)
	hash := s.master.KeyHash(text)
	row.Hash = hash[:]
	row.Prefix, row.Last4 = secret.Shown(secret.APIKey, text)
	err = s.inOrg(ctx, in.Org, func(tx pgx.Tx, rows *q.Queries) error {
		p, err := rows.GetProject(ctx, q.GetProjectParams{OrgID: in.Org, ID: in.Project})
		if err != nil {
			return tenants.Found(err, "project")
		}
		if p.ArchivedAt != nil {
			return fault.New(fault.Conflict, "The project is archived.").WithCode("project_archived").WithParam("project_id")
		}
		live, err := rows.CountLiveKeys(ctx, q.CountLiveKeysParams{OrgID: in.Org, Hidden: hidden, Now: row.CreatedAt})
		switch {
		case err != nil:
			return err
		case hidden && live >= maxHidden:
			return fault.New(fault.Conflict, "An organization may send %d playground messages in %d minutes. Try again shortly.", maxHidden,
				int(PlaygroundTTL/time.Minute)).WithCode("too_many_messages")
		case !hidden && live >= maxLive:
			return fault.New(fault.Conflict, "An organization may have %d keys. Revoke some first.", maxLive).WithCode("too_many_keys")
		}
		made, err := rows.InsertKey(ctx, row)
		if err != nil {
			return sent(err)
		}
		k = keyOf(made)
		return s.audit(ctx, tx, by, k, "key.create", nil, k)
	})
	if err != nil {
		return Key{}, "", err
	}
	s.notice(ctx, k) // a gateway may remember it as unknown, when somebody tried it early
	return k, text, nil
}

// id is the new key's. A form's id only leads to it: nobody may choose the id of a key, because limits and budgets know
// keys by it.
func (in *NewKey) id() ids.ID {
	id := ids.New()
	if in.Form == ids.Nil {
		return id
	}
	sum := sha256.Sum256(append(in.Org[:], in.Form[:]...))
	copy(id[:6], in.Form[:6]) // the moment, as in every UUIDv7
	copy(id[6:], sum[:10])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}

// sent turns a taken id into the Conflict that it stands for.
func sent(err error) error {
	var taken *fault.Fault
	if errors.As(tenants.Taken(err, "This form was sent already. The key was shown then and cannot be shown again: revoke it if it was not copied, and make another one."), &taken) {
		return taken.WithCode("form_sent")
	}
	return err
}

func endsTooLate() error {
	return fault.New(fault.Invalid, "A key ends at most on %s. Leave the expiry out for one that does not end.", clock.LatestText).WithParam("expires_at")
}

func (s *Service) newRow(by tenants.Actor, in NewKey, hidden bool) (q.InsertKeyParams, error) {
	name, err := tenants.Name("name", in.Name, maxName)
	if err != nil {
		return q.InsertKeyParams{}, err
	}
	now := s.now()
	row := q.InsertKeyParams{OrgID: in.Org, ID: in.id(), ProjectID: in.Project, Name: name, CreatedAt: now, Hidden: hidden}
	if !in.ExpiresAt.IsZero() {
		if !in.ExpiresAt.After(now) {
			return q.InsertKeyParams{}, fault.New(fault.Invalid, "The expiry lies in the past.").WithParam("expires_at")
		}
		if in.ExpiresAt.After(clock.Latest) {
			return q.InsertKeyParams{}, endsTooLate()
		}
		at := in.ExpiresAt.UTC().Truncate(time.Microsecond)
		row.ExpiresAt = &at
	}
	if by.User != ids.Nil {
		row.CreatedBy = &by.User
	}
	row.Rpm, row.Tpm, row.Concurrency, err = in.Limits.columns()
	return row, err
}

// Keys lists an organization's keys, newest first, older than before, of one project or (ids.Nil) all. Revoked and
// expired ones are listed too; hidden ones never.
func (s *Service) Keys(ctx context.Context, by tenants.Actor, org, project, before ids.ID, limit int) (keys []Key, err error) {
	if err := by.Require(tenants.KeysRead, org); err != nil {
		return nil, err
	}
	err = s.inOrg(ctx, org, func(_ pgx.Tx, rows *q.Queries) error {
		found, err := rows.ListKeys(ctx, q.ListKeysParams{OrgID: org, ProjectID: project, Before: before, MaxRows: tenants.Page(limit)})
		keys = make([]Key, len(found))
		for i, r := range found {
			keys[i] = keyOf(r)
		}
		return err
	})
	return keys, err
}

// Key gives one key.
func (s *Service) Key(ctx context.Context, by tenants.Actor, org, id ids.ID) (k Key, err error) {
	if err := by.Require(tenants.KeysRead, org); err != nil {
		return Key{}, err
	}
	err = s.inOrg(ctx, org, func(_ pgx.Tx, rows *q.Queries) error {
		row, err := rows.GetKey(ctx, q.GetKeyParams{OrgID: org, ID: id})
		k = keyOf(row)
		return tenants.Found(err, "key")
	})
	return k, err
}

// now is the time as PostgreSQL keeps it.
func (s *Service) now() time.Time { return s.clock.Now().UTC().Truncate(time.Microsecond) }

func (s *Service) inOrg(ctx context.Context, org ids.ID, fn func(tx pgx.Tx, rows *q.Queries) error) error {
	return s.db.InTx(ctx, db.Org(org), func(tx pgx.Tx) error { return fn(tx, q.New(tx)) })
}

func (s *Service) audit(ctx context.Context, tx pgx.Tx, by tenants.Actor, k Key, action string, before, after any) error {
	return audit.Append(ctx, tx, by, audit.Change{Org: k.Org, Action: action, Target: ids.Format(ids.Key, k.ID), Before: before, After: after, At: s.now()})
}

// notice tells gateways to forget what they know about the key. Call it after the commit.
func (s *Service) notice(ctx context.Context, k Key) {
	if err := s.notify.Publish(bus.NoticeKey, []byte(hex.EncodeToString(k.hash))); err != nil {
		slog.WarnContext(ctx, "keys: gateways were not told of a change; they notice within HardTTL", "cause", err)
	}
}
