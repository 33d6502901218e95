package tenants

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants/secret"
)

const maxTokenName = 100

// ControlToken is a bearer of the control API: an operator's program, with an operator's rights.
type ControlToken struct {
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by,omitempty"` // the person behind it, as rows name people; "" = not known
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// CreateControlToken makes a token; bearer is shown once. The name must not be a live token's. Behind it is the person who asks,
// or who is behind the token that asks: what it does is theirs. Operators only.
func (s *Service) CreateControlToken(ctx context.Context, by Actor, name string) (bearer string, err error) {
	if err := by.RequireOperator(); err != nil {
		return "", err
	}
	if name, err = Name("name", name, maxTokenName); err != nil {
		return "", err
	}
	bearer = secret.New(secret.ControlToken)
	hash := s.master.KeyHash(bearer)
	err = s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		holder, err := behind(ctx, rows, by)
		if err != nil {
			return err
		}
		err = rows.InsertControlToken(ctx, q.InsertControlTokenParams{TokenHash: hash[:], Name: name, CreatedAt: s.now(), CreatedBy: holder})
		if err != nil {
			return Taken(err, "A control token named %q exists. Revoke it first.", name)
		}
		return s.audit(ctx, tx, by, ids.Nil, "control_token.create", name, nil, nil)
	})
	return bearer, err
}

// behind is the person who acts, in person or by a control token; "" = not known.
func behind(ctx context.Context, rows *q.Queries, by Actor) (string, error) {
	switch {
	case by.User != ids.Nil:
		return by.Name(), nil
	case by.Token == "":
		return "", nil
	}
	holder, err := rows.ControlTokenHolder(ctx, by.Token)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return holder, err
}

// AdoptControlToken puts the person of this address behind the live token of this name, where nobody is known to be: from now on
// what it does is theirs. A token that has a person, or is not there, stays as it is. For the start of a server; no program may ask.
func (s *Service) AdoptControlToken(ctx context.Context, by Actor, name, email string) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	if by.Token != "" {
		return fault.New(fault.Forbidden, "A control token says nothing about who is behind one.").WithCode("person_needed")
	}
	return s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		u, err := rows.GetUserByEmail(ctx, email)
		if err != nil {
			return Found(err, "user")
		}
		holder := ids.Format(ids.User, u.ID)
		n, err := rows.AdoptControlToken(ctx, q.AdoptControlTokenParams{Name: name, Holder: holder})
		if err != nil || n == 0 {
			return err
		}
		return s.audit(ctx, tx, by, ids.Nil, "control_token.adopt", name, nil, map[string]string{"created_by": holder})
	})
}

// RevokeControlToken ends the live token of this name. Operators only.
func (s *Service) RevokeControlToken(ctx context.Context, by Actor, name string) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	now := s.now()
	return s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		if _, err := rows.RevokeControlToken(ctx, q.RevokeControlTokenParams{Name: name, RevokedAt: &now}); err != nil {
			return Found(err, "live control token")
		}
		return s.audit(ctx, tx, by, ids.Nil, "control_token.revoke", name, nil, nil)
	})
}

// ControlTokens lists all of them, the newest first. Operators only.
func (s *Service) ControlTokens(ctx context.Context, by Actor) (all []ControlToken, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		found, err := rows.ListControlTokens(ctx)
		all = each(found, func(r q.ListControlTokensRow) ControlToken {
			return ControlToken{Name: r.Name, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, RevokedAt: r.RevokedAt}
		})
		return err
	})
	return all, err
}

// AuthenticateControl gives the actor of a control token. The database is asked every time, so a revoked token is refused
// at once; the lookup is by HMAC, so timing tells nothing about other tokens. Errors: fault.Unauthenticated.
func (s *Service) AuthenticateControl(ctx context.Context, bearer string) (Actor, error) {
	unknown := fault.New(fault.Unauthenticated, "This is no control token. Send one in the header Authorization: Bearer mr_ctl_….").WithCode("invalid_token")
	if !secret.Plausible(secret.ControlToken, bearer) {
		return Actor{}, unknown
	}
	hash := s.master.KeyHash(bearer)
	var row q.ControlToken
	err := s.system(ctx, func(_ pgx.Tx, rows *q.Queries) (err error) {
		row, err = rows.GetControlToken(ctx, hash[:])
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Actor{}, unknown
	case err != nil:
		return Actor{}, err
	case row.RevokedAt != nil:
		return Actor{}, fault.New(fault.Unauthenticated, "This control token was revoked.").WithCode("token_revoked")
	}
	return Actor{Operator: true, Token: row.Name}, nil
}
