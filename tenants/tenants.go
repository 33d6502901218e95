// Package tenants owns who a customer is: organizations, their projects and members, people, how they sign in, and the
// bearers of the control API. It does not own API keys (tenants/keys), rate limits (tenants/limits), money or models.
//
// Words: an operator runs Millrace and sells tokens; an organization is a customer; a member is a person in it with one
// role; a control token is an operator's program.
//
// Invariants: every function checks its Actor; every change is audited in its own transaction; secrets are stored as
// hashes only; an organization never loses its last owner; a sign-in link works once.
package tenants

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/tenants/audit"
)

// MaxPage is the most rows a list gives at once.
const MaxPage = 200

// Notifier sends notices: *bus.Bus. A lost notice costs time, never correctness: caches have a hard limit of age.
type Notifier interface {
	Publish(subject string, data []byte) error
}

// Service is the domain's door. It is safe for concurrent use.
type Service struct {
	db      *db.DB
	master  *seal.Master
	clock   clock.Clock
	notify  Notifier
	linkURL func(token string) string
}

// New makes the service. linkURL gives the address of the console's sign-in page for a link's token.
func New(d *db.DB, master *seal.Master, c clock.Clock, notify Notifier, linkURL func(token string) string) *Service {
	return &Service{db: d, master: master, clock: c, notify: notify, linkURL: linkURL}
}

// now is the time as PostgreSQL keeps it, so that what is returned equals what is read later.
func (s *Service) now() time.Time { return s.clock.Now().UTC().Truncate(time.Microsecond) }

func (s *Service) system(ctx context.Context, fn func(tx pgx.Tx, q *q.Queries) error) error {
	return s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error { return fn(tx, q.New(tx)) })
}

func (s *Service) inOrg(ctx context.Context, org ids.ID, fn func(tx pgx.Tx, q *q.Queries) error) error {
	return s.db.InTx(ctx, db.Org(org), func(tx pgx.Tx) error { return fn(tx, q.New(tx)) })
}

func (s *Service) audit(ctx context.Context, tx pgx.Tx, by Actor, org ids.ID, action, target string, before, after any) error {
	return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: action, Target: target, Before: before, After: after, At: s.now()})
}

// noticeOrg tells gateways that everything they know about the organization's keys is old. Call it after the commit.
func (s *Service) noticeOrg(ctx context.Context, org ids.ID) {
	if err := s.notify.Publish(bus.NoticeKey, []byte(ids.Format(ids.Org, org))); err != nil {
		slog.WarnContext(ctx, "tenants: gateways were not told of a change; they notice by themselves", "cause", err)
	}
}

// noticeKeys tells gateways to forget what they know about these keys. Call it after the commit.
func (s *Service) noticeKeys(ctx context.Context, hashes [][]byte) {
	for _, h := range hashes {
		if err := s.notify.Publish(bus.NoticeKey, []byte(hex.EncodeToString(h))); err != nil {
			slog.WarnContext(ctx, "tenants: gateways were not told of ended keys; they notice by themselves", "cause", err)
			return
		}
	}
}

// Found turns "no rows" into a NotFound fault that names what was looked for.
func Found(err error, what string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return notFound(what)
	}
	return err
}

// Taken turns a violated unique key into a Conflict fault with this message.
func Taken(err error, format string, args ...any) error {
	const uniqueViolation = "23505"
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == uniqueViolation {
		return fault.Wrap(err, fault.Conflict, format, args...)
	}
	return err
}

// Name checks a name that people give: 1 to maxRunes printable characters. It gives the trimmed name.
func Name(param, s string, maxRunes int) (string, error) {
	s = strings.TrimSpace(s)
	switch n := utf8.RuneCountInString(s); {
	case n == 0:
		return "", fault.New(fault.Invalid, "Give a name.").WithParam(param)
	case n > maxRunes:
		return "", fault.New(fault.Invalid, "The name may have at most %d characters.", maxRunes).WithParam(param)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", fault.New(fault.Invalid, "The name has characters that cannot be shown.").WithParam(param)
	}
	return s, nil
}

// each converts rows. It starts from nothing every time, because a transaction may run more than once.
func each[R, T any](rows []R, convert func(R) T) []T {
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = convert(r)
	}
	return out
}

// Page bounds a page's size: limit 0 means MaxPage.
func Page(limit int) int32 {
	if limit <= 0 || limit > MaxPage {
		return MaxPage
	}
	return int32(limit)
}
