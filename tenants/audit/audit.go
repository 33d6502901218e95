// Package audit appends to the log of who changed what. It owns audit_log; it does not decide who may change anything.
//
// Invariants: an entry is written in the transaction of its change, so neither exists without the other; entries are
// never changed; no entry holds a secret.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/ids"
)

// Author is who acts. tenants.Actor is one.
type Author interface {
	AuditIdentity() Identity
}

// Identity is an author as the log keeps it.
type Identity struct {
	Actor     string // user_…, token:name, or system
	ActingAs  string // whose view an operator took; "" = his own
	RequestID string
	IP        string
}

// Change is one entry. Before and After are marshalled to JSON; nil says that there was, or is, nothing.
type Change struct {
	Org           ids.ID // ids.Nil for the operator's own matters
	Action        string // noun.verb, for example key.revoke
	Target        string // a formatted id, or another name of the thing
	Before, After any
	At            time.Time
}

// Append writes the change in tx.
func Append(ctx context.Context, tx q.DBTX, by Author, c Change) error {
	who := by.AuditIdentity()
	before, err := encode(c.Before)
	if err != nil {
		return fmt.Errorf("audit: %s: %w", c.Action, err)
	}
	after, err := encode(c.After)
	if err != nil {
		return fmt.Errorf("audit: %s: %w", c.Action, err)
	}
	err = q.New(tx).InsertAudit(ctx, q.InsertAuditParams{OrgID: c.Org, ID: ids.New(), At: c.At, Actor: who.Actor,
		ActingAs: optional(who.ActingAs), Action: c.Action, Target: c.Target, Before: before, After: after,
		RequestID: optional(who.RequestID), Ip: optional(who.IP)})
	if err != nil {
		return fmt.Errorf("audit: %s: %w", c.Action, err)
	}
	return nil
}

// Entry is a change as it was logged.
type Entry struct {
	Org           ids.ID
	ID            ids.ID
	At            time.Time
	By            Identity
	Action        string
	Target        string
	Before, After json.RawMessage // nil = nothing
}

// List gives an organization's entries (ids.Nil: the operator's own), newest first, older than before (ids.Nil: from the
// newest), at most limit.
func List(ctx context.Context, tx q.DBTX, org, before ids.ID, limit int32) ([]Entry, error) {
	rows, err := q.New(tx).ListAudit(ctx, q.ListAuditParams{OrgID: org, Before: before, MaxRows: limit})
	if err != nil {
		return nil, fmt.Errorf("audit: list: %w", err)
	}
	entries := make([]Entry, len(rows))
	for i, r := range rows {
		entries[i] = entryOf(r)
	}
	return entries, nil
}

// Last gives an organization's newest entry of an action; the zero Entry when there is none.
func Last(ctx context.Context, tx q.DBTX, org ids.ID, action string) (Entry, error) {
	r, err := q.New(tx).LastAudit(ctx, q.LastAuditParams{OrgID: org, Action: action})
	if errors.Is(err, pgx.ErrNoRows) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, fmt.Errorf("audit: last %s: %w", action, err)
	}
	return entryOf(r), nil
}

func entryOf(r q.AuditLog) Entry {
	return Entry{Org: r.OrgID, ID: r.ID, At: r.At, Action: r.Action, Target: r.Target, Before: r.Before, After: r.After,
		By: Identity{Actor: r.Actor, ActingAs: text(r.ActingAs), RequestID: text(r.RequestID), IP: text(r.Ip)}}
}

func encode(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
