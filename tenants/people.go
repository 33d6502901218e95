package tenants

import (
	"context"
	"net/mail"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

const maxEmail = 254 // bytes, RFC 5321

// User is a person. One may belong to several organizations.
type User struct {
	ID         ids.ID     `json:"id"`
	Email      string     `json:"email"`
	Name       string     `json:"name"`
	Operator   bool       `json:"operator"`
	CreatedAt  time.Time  `json:"created_at"`
	DisabledAt *time.Time `json:"disabled_at,omitempty"`
}

func userOf(r q.User) User {
	return User{ID: r.ID, Email: r.Email, Name: r.Name, Operator: r.IsOperator, CreatedAt: r.CreatedAt, DisabledAt: r.DisabledAt}
}

// Email checks an e-mail address and gives it in the form in which it is stored: small letters, no display name.
func Email(param, s string) (string, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	addr, err := mail.ParseAddress(s)
	if err != nil || addr.Address != s || addr.Name != "" || len(s) > maxEmail {
		return "", fault.New(fault.Invalid, "This is no e-mail address.").WithParam(param)
	}
	return s, nil
}

// EnsureOperator gives the user of this address, made if there is none, with an operator's rights. Operators only.
func (s *Service) EnsureOperator(ctx context.Context, by Actor, email string) (u User, err error) {
	if err := by.RequireOperator(); err != nil {
		return User{}, err
	}
	if email, err = Email("email", email); err != nil {
		return User{}, err
	}
	err = s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		row, err := s.ensureUser(ctx, rows, email)
		if err != nil || row.IsOperator {
			u = userOf(row)
			return err
		}
		u, err = s.setOperator(ctx, tx, rows, by, userOf(row), true)
		return err
	})
	return u, err
}

// SetOperator gives or takes an operator's rights. Operators only, and never one's own: the last one cannot lock all out.
func (s *Service) SetOperator(ctx context.Context, by Actor, id ids.ID, operator bool) (u User, err error) {
	if err := by.RequireOperator(); err != nil {
		return User{}, err
	}
	if by.User == id {
		return User{}, fault.New(fault.Conflict, "Another operator must change your own rights.").WithCode("own_rights")
	}
	err = s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		old, err := rows.GetUser(ctx, id)
		if err != nil {
			return Found(err, "user")
		}
		u, err = s.setOperator(ctx, tx, rows, by, userOf(old), operator)
		return err
	})
	return u, err
}

func (s *Service) setOperator(ctx context.Context, tx pgx.Tx, rows *q.Queries, by Actor, old User, operator bool) (User, error) {
	row, err := rows.SetUserOperator(ctx, q.SetUserOperatorParams{ID: old.ID, IsOperator: operator})
	if err != nil {
		return User{}, err
	}
	u := userOf(row)
	return u, s.audit(ctx, tx, by, ids.Nil, "user.set_operator", ids.Format(ids.User, u.ID), old, u)
}

// DisableUser ends the user's sessions and playground keys, and refuses new ones. Operators only. It is no error to do it twice.
func (s *Service) DisableUser(ctx context.Context, by Actor, id ids.ID) (u User, err error) {
	if err := by.RequireOperator(); err != nil {
		return User{}, err
	}
	now := s.now()
	var ended [][]byte
	err = s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		old, err := rows.GetUser(ctx, id)
		if err != nil || old.DisabledAt != nil {
			u = userOf(old)
			return Found(err, "user")
		}
		row, err := rows.SetUserDisabled(ctx, q.SetUserDisabledParams{ID: id, DisabledAt: &now})
		if err != nil {
			return err
		}
		u = userOf(row)
		if err := rows.EndSessionsOfUser(ctx, q.EndSessionsOfUserParams{UserID: id, EndedAt: &now}); err != nil {
			return err
		}
		if ended, err = s.endPlayground(ctx, rows, id, ids.Nil); err != nil {
			return err
		}
		return s.audit(ctx, tx, by, ids.Nil, "user.disable", ids.Format(ids.User, id), userOf(old), u)
	})
	if err == nil {
		s.noticeKeys(ctx, ended)
	}
	return u, err
}

func (s *Service) ensureUser(ctx context.Context, rows *q.Queries, email string) (q.User, error) {
	return rows.EnsureUser(ctx, q.EnsureUserParams{ID: ids.New(), Email: email, CreatedAt: s.now()})
}
