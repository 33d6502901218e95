package tenants

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants/secret"
)

func signedOut() error {
	return fault.New(fault.Unauthenticated, "Sign in to go on.").WithCode("signed_out")
}

// Session gives the session of a cookie and prolongs it.
// Errors: fault.Unauthenticated when there is none, it has ended, or its user is disabled.
func (s *Service) Session(ctx context.Context, cookie string) (session Session, err error) {
	if !secret.Plausible(secret.Session, cookie) {
		return Session{}, signedOut()
	}
	hash := s.master.KeyHash(cookie)
	err = s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		now := s.now()
		row, err := rows.GetSession(ctx, q.GetSessionParams{TokenHash: hash[:], Now: now})
		if errors.Is(err, pgx.ErrNoRows) {
			return signedOut()
		}
		if err != nil {
			return err
		}
		session = sessionOf(row.Session)
		session.User = userOf(row.User)
		if now.Sub(session.Seen) < seenResolution {
			return nil
		}
		session.Seen, session.Expires = now, earlier(now.Add(SessionIdle), session.Created.Add(SessionMax))
		return rows.TouchSession(ctx, q.TouchSessionParams{TokenHash: hash[:], SeenAt: now, ExpiresAt: session.Expires})
	})
	return session, err
}

// Sessions lists the actor's own sessions, the last used first. User holds the id only.
func (s *Service) Sessions(ctx context.Context, by Actor) (all []Session, err error) {
	err = s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		found, err := rows.ListSessions(ctx, q.ListSessionsParams{UserID: by.User, Now: s.now()})
		all = each(found, sessionOf)
		return err
	})
	return all, err
}

// EndSession signs out one of the actor's own sessions, and ends the actor's playground keys with it: another session makes
// itself a new one at its next request. Ending an ended session is no error.
func (s *Service) EndSession(ctx context.Context, by Actor, id string) error {
	hash, err := hex.DecodeString(id)
	if err != nil {
		return notFound("session")
	}
	now := s.now()
	var ended [][]byte
	err = s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		_, err := rows.EndSession(ctx, q.EndSessionParams{TokenHash: hash, UserID: by.User, EndedAt: &now})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if ended, err = s.endPlayground(ctx, rows, by.User, ids.Nil); err != nil {
			return err
		}
		return s.audit(ctx, tx, by, ids.Nil, "session.end", ids.Format(ids.User, by.User), nil, nil)
	})
	if err == nil {
		s.noticeKeys(ctx, ended)
	}
	return err
}

// endPlayground ends the hidden keys that a user's console pages hold, in one organization or (ids.Nil) in all, and gives
// their hashes for noticeKeys after the commit.
func (s *Service) endPlayground(ctx context.Context, rows *q.Queries, user, org ids.ID) ([][]byte, error) {
	return rows.RevokeHiddenKeys(ctx, q.RevokeHiddenKeysParams{Now: s.now(), UserID: user, OrgID: org})
}

func sessionOf(r q.Session) Session {
	return Session{ID: hex.EncodeToString(r.TokenHash), User: User{ID: r.UserID}, Created: r.CreatedAt, Seen: r.SeenAt, Expires: r.ExpiresAt}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
