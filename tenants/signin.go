package tenants

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants/secret"
)

// Times of signing in.
const (
	LinkTTL        = 15 * time.Minute    // of a link sent by mail
	MaxLinkTTL     = 24 * time.Hour      // the longest an operator may ask for
	SessionIdle    = 14 * 24 * time.Hour // a session unused for so long has ended
	SessionMax     = 90 * 24 * time.Hour // a session ends after this, however much it is used
	seenResolution = 5 * time.Minute     // how often a session's use is written
	maxLinksSent   = 5                   // mails to one address within LinkTTL
)

// Link is a one-time sign-in link.
type Link struct {
	URL     string
	Email   string
	Expires time.Time
}

// Session is a browser's sign-in.
type Session struct {
	ID      string // names it in lists; of no use for signing in
	User    User
	Created time.Time
	Seen    time.Time
	Expires time.Time
}

// CreateLink makes a sign-in link for an existing user, valid for ttl. Operators only.
func (s *Service) CreateLink(ctx context.Context, by Actor, email string, ttl time.Duration) (link Link, err error) {
	if err := by.RequireOperator(); err != nil {
		return Link{}, err
	}
	if ttl <= 0 || ttl > MaxLinkTTL {
		return Link{}, fault.New(fault.Invalid, "A sign-in link is valid for at most %s.", MaxLinkTTL).WithParam("ttl")
	}
	if email, err = Email("email", email); err != nil {
		return Link{}, err
	}
	err = s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		u, err := rows.GetUserByEmail(ctx, email)
		if err != nil {
			return Found(err, "user")
		}
		if u.DisabledAt != nil {
			return fault.New(fault.Conflict, "This user is disabled.").WithCode("user_disabled")
		}
		if u.IsOperator && by.Token != "" { // a program would become a second operator
			return fault.New(fault.Forbidden, "A control token makes no sign-in links of operators. Use millrace operator, or the sign-in page.").WithCode("person_needed")
		}
		if link, err = s.insertLink(ctx, rows, u, ttl); err != nil {
			return err
		}
		return s.audit(ctx, tx, by, ids.Nil, "login_link.create", ids.Format(ids.User, u.ID), nil, map[string]time.Time{"expires_at": link.Expires})
	})
	return link, err
}

// RequestLink mails a sign-in link to the address, if it is a user's. It says nothing about whether it is: the answer is
// the same for everybody.
func (s *Service) RequestLink(ctx context.Context, email string) error {
	email, err := Email("email", email)
	if err != nil {
		return err
	}
	return s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		u, err := rows.GetUserByEmail(ctx, email)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && u.DisabledAt != nil {
			return nil
		}
		if err != nil {
			return err
		}
		sent, err := rows.CountLoginLinksSince(ctx, q.CountLoginLinksSinceParams{UserID: u.ID, CreatedAt: s.now().Add(-LinkTTL)})
		if err != nil || sent >= maxLinksSent {
			return err
		}
		link, err := s.insertLink(ctx, rows, u, LinkTTL)
		if err != nil {
			return err
		}
		return s.mail(ctx, rows, email, "Your sign-in link", fmt.Sprintf(
			"Open this link within %d minutes to sign in. It works once.\n\n%s\n\nIf you did not ask for it, ignore this mail.\n",
			int(LinkTTL/time.Minute), link.URL))
	})
}

func (s *Service) insertLink(ctx context.Context, rows *q.Queries, u q.User, ttl time.Duration) (Link, error) {
	token := secret.New(secret.LoginLink)
	hash := s.master.KeyHash(token)
	now := s.now()
	err := rows.InsertLoginLink(ctx, q.InsertLoginLinkParams{TokenHash: hash[:], UserID: u.ID, CreatedAt: now, ExpiresAt: now.Add(ttl)})
	return Link{URL: s.linkURL(token), Email: u.Email, Expires: now.Add(ttl)}, err
}

// SignIn exchanges a link's token for a session; the token works once. The caller keeps the session's secret in a cookie
// and nowhere else. ip and requestID are for the audit log.
func (s *Service) SignIn(ctx context.Context, linkToken, ip, requestID string) (cookie string, session Session, err error) {
	refused := fault.New(fault.Unauthenticated, "This sign-in link has been used or has expired. Ask for a new one.").WithCode("invalid_link")
	if !secret.Plausible(secret.LoginLink, linkToken) {
		return "", Session{}, refused
	}
	hash := s.master.KeyHash(linkToken)
	err = s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		now := s.now()
		u, err := rows.UseLoginLink(ctx, q.UseLoginLinkParams{TokenHash: hash[:], Now: now})
		if errors.Is(err, pgx.ErrNoRows) {
			return refused
		}
		if err != nil {
			return err
		}
		cookie = secret.New(secret.Session)
		sum := s.master.KeyHash(cookie)
		session = Session{ID: hex.EncodeToString(sum[:]), User: userOf(u), Created: now, Seen: now, Expires: now.Add(SessionIdle)}
		if err := rows.InsertSession(ctx, q.InsertSessionParams{TokenHash: sum[:], UserID: u.ID, CreatedAt: now, ExpiresAt: session.Expires}); err != nil {
			return err
		}
		by := Actor{User: u.ID, IP: ip, RequestID: requestID}
		return s.audit(ctx, tx, by, ids.Nil, "session.start", ids.Format(ids.User, u.ID), nil, nil)
	})
	return cookie, session, err
}
