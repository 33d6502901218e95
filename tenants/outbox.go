package tenants

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants/audit"
)

// How long what is over is kept.
const (
	keepLinks    = 7 * 24 * time.Hour
	keepSessions = 30 * 24 * time.Hour
	keepMail     = 30 * 24 * time.Hour
)

// Mail is a message that waits to be sent, or, without a mail server, to be read by an operator.
type Mail struct {
	ID        ids.ID
	Recipient string
	Subject   string
	Body      string
	CreatedAt time.Time
	SentAt    *time.Time
	Attempts  int32     // to send it
	NextAt    time.Time // of the next attempt, while it is not sent
	Problem   string    // of the last attempt
	Hidden    bool      // it is another operator's: its body is not shown
}

func (s *Service) mail(ctx context.Context, rows *q.Queries, to, subject, body string) error {
	return rows.InsertOutbox(ctx, q.InsertOutboxParams{ID: ids.New(), Recipient: to, Subject: subject, Body: body, CreatedAt: s.now()})
}

// Outbox lists mail, newest first, older than before. Operators only: bodies hold sign-in links. Those of other operators are
// hidden: whoever could read them could act as the second operator for what he asked for himself.
func (s *Service) Outbox(ctx context.Context, by Actor, before ids.ID, limit int) (mails []Mail, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		found, err := rows.ListOutbox(ctx, q.ListOutboxParams{Before: before, MaxRows: Page(limit)})
		mails = each(found, func(r q.Outbox) Mail {
			return Mail{ID: r.ID, Recipient: r.Recipient, Subject: r.Subject, Body: r.Body, CreatedAt: r.CreatedAt, SentAt: r.SentAt,
				Attempts: r.Attempts, NextAt: r.NextAt, Problem: r.Problem}
		})
		if err != nil || by.system {
			return err
		}
		others, err := rows.OtherOperators(ctx, by.User)
		for i := range mails {
			if m := &mails[i]; slices.ContainsFunc(others, func(o string) bool { return strings.EqualFold(o, m.Recipient) }) {
				m.Body, m.Hidden = "", true
			}
		}
		return err
	})
	return mails, err
}

// LinkState says whether a sign-in link still works.
type LinkState struct {
	Expires time.Time
	Used    bool
}

// LinkStates tells of the sign-in links with these tokens, as mail holds them; a token that is no link's, or was swept, is
// missing. Operators only.
func (s *Service) LinkStates(ctx context.Context, by Actor, tokens []string) (map[string]LinkState, error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	byHash := make(map[string]string, len(tokens))
	hashes := make([][]byte, len(tokens))
	for i, token := range tokens {
		hash := s.master.KeyHash(token)
		hashes[i], byHash[string(hash[:])] = hash[:], token
	}
	states := make(map[string]LinkState, len(tokens))
	err := s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		found, err := rows.LoginLinks(ctx, hashes)
		for _, r := range found {
			states[byHash[string(r.TokenHash)]] = LinkState{Expires: r.ExpiresAt, Used: r.UsedAt != nil}
		}
		return err
	})
	return states, err
}

// Audit lists what was done in an organization (ids.Nil: the operator's own matters), newest first, older than before.
func (s *Service) Audit(ctx context.Context, by Actor, org, before ids.ID, limit int) (entries []audit.Entry, err error) {
	if err := by.Require(AuditRead, org); err != nil {
		return nil, err
	}
	err = s.inOrg(ctx, org, func(tx pgx.Tx, _ *q.Queries) error {
		entries, err = audit.List(ctx, tx, org, before, Page(limit))
		return err
	})
	return entries, err
}

// sweepEvery is how often a worker sweeps.
const sweepEvery = time.Hour

// RunSweeps sweeps until ctx ends. A sweep that fails is tried again at the next one's time.
func (s *Service) RunSweeps(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "tenants: old links, sessions and mail stay for now", "cause", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Sweep deletes links, sessions and mail that have been over for long.
func (s *Service) Sweep(ctx context.Context) error {
	return s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		now := s.now()
		if err := rows.DeleteOldLoginLinks(ctx, now.Add(-keepLinks)); err != nil {
			return err
		}
		if err := rows.DeleteOldSessions(ctx, now.Add(-keepSessions)); err != nil {
			return err
		}
		return rows.DeleteOldOutbox(ctx, now.Add(-keepMail))
	})
}
