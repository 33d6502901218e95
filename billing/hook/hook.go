// Package hook tells customers' programs what happened, by signed HTTP requests.
//
// It owns webhooks and webhook_deliveries. It does not own what happened: whoever has news queues it in the transaction
// that makes it true (Queue), so that no news is lost and none is told that never was.
//
// Invariants: the secret is shown once and kept sealed; every request is signed with its time, so that an old one cannot be
// sent again; a request goes to no private, loopback or otherwise special address, which is decided for the very address
// that is dialled, after the name was resolved; redirects are not followed; a delivery is repeated with the same event id
// until the receiver answers 2xx or the schedule ends (at least once, never silently dropped: the log says how it ended).
package hook

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/outbound"
	"millrace/internal/seal"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Prefixes of public ids.
const (
	Prefix      = "hook" // a webhook
	EventPrefix = "evt"  // what happened
)

// Limits.
const (
	maxURL       = 500 // bytes
	maxPerOrg    = 10
	secretBytes  = 32
	secretPrefix = "whsec_"
	maxListed    = 100 // deliveries
)

// Service manages an organization's webhooks and sends what is queued.
type Service struct {
	db       *db.DB
	master   *seal.Master
	clock    clock.Clock
	loopback bool
	client   *http.Client
}

// New makes the service. loopback allows http and addresses of this machine: for development only.
func New(d *db.DB, m *seal.Master, c clock.Clock, loopback bool) *Service {
	return &Service{db: d, master: m, clock: c, loopback: loopback, client: outbound.NewClient(loopback)}
}

func (s *Service) now() time.Time { return s.clock.Now().UTC().Truncate(time.Microsecond) }

// Hook is a webhook as lists show it.
type Hook struct {
	ID              ids.ID
	URL             string
	Problem         string // why nothing is delivered there, whatever it answers; "" = it is tried
	CreatedBy       string
	CreatedAt       time.Time
	Waiting, Failed int64 // deliveries
}

// Add makes a webhook and gives its secret, for the only time.
func (s *Service) Add(ctx context.Context, by tenants.Actor, org ids.ID, address string) (h Hook, secret string, err error) {
	if err := by.Require(tenants.CapsManage, org); err != nil {
		return Hook{}, "", err
	}
	if address, err = s.checkURL(address); err != nil {
		return Hook{}, "", err
	}
	raw := make([]byte, secretBytes)
	_, _ = rand.Read(raw) // crypto/rand.Read never fails
	secret = secretPrefix + base64.RawURLEncoding.EncodeToString(raw)
	h = Hook{ID: ids.New(), URL: address, CreatedBy: by.Name(), CreatedAt: s.now()}
	err = s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		queries := q.New(tx)
		n, err := queries.CountWebhooks(ctx, org)
		if err != nil {
			return fmt.Errorf("hook: count: %w", err)
		}
		if n >= maxPerOrg {
			return fault.New(fault.Conflict, "An organization has at most %d webhooks. Remove one first.", maxPerOrg).WithCode("too_many_webhooks").WithParam("url")
		}
		err = queries.InsertWebhook(ctx, q.InsertWebhookParams{OrgID: org, ID: h.ID, Url: h.URL, Secret: s.master.Seal([]byte(secret), sealContext(h.ID)),
			CreatedBy: h.CreatedBy, CreatedAt: h.CreatedAt})
		if err != nil {
			return fmt.Errorf("hook: insert: %w", err)
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: "webhook.create", Target: ids.Format(Prefix, h.ID), After: map[string]string{"url": h.URL}, At: h.CreatedAt})
	})
	return h, secret, err
}

func sealContext(id ids.ID) string { return "webhook/" + id.String() }

// checkURL refuses what can never be delivered to. Where a name leads is decided when it is dialled.
func (s *Service) checkURL(address string) (string, error) {
	refuse := func(message string) (string, error) {
		return "", fault.New(fault.Invalid, "%s", message).WithParam("url")
	}
	address = strings.TrimSpace(address)
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || len(address) > maxURL:
		return refuse("Give a whole address of at most 500 bytes, like https://example.com/hooks/millrace.")
	case u.Scheme != "https" && (u.Scheme != "http" || !s.loopback):
		return refuse("Webhooks need https: the request carries what your spending is.")
	case outbound.CheckHost(u.Hostname(), s.loopback) != nil:
		return refuse("Give a public address: " + outbound.ErrPrivate.Error() + ".")
	case u.User != nil:
		return refuse("Leave user and password out of the address. The signature says who sends.")
	case u.Fragment != "":
		return refuse("Leave the part after # out of the address: it is never sent.")
	}
	return u.String(), nil
}

// Hooks lists an organization's webhooks, newest first.
func (s *Service) Hooks(ctx context.Context, by tenants.Actor, org ids.ID) (list []Hook, err error) {
	if err := by.Require(tenants.CapsManage, org); err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).Webhooks(ctx, org)
		list = make([]Hook, len(rows))
		for i, r := range rows {
			list[i] = Hook{ID: r.ID, URL: r.Url, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, Waiting: r.Waiting, Failed: r.Failed}
			if _, err := s.checkURL(r.Url); err != nil { // made when such addresses were taken
				list[i].Problem = fault.Of(err).Message
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hook: list: %w", err)
	}
	return list, nil
}

// Remove ends a webhook. What waits for it is not sent any more.
func (s *Service) Remove(ctx context.Context, by tenants.Actor, org, id ids.ID) error {
	if err := by.Require(tenants.CapsManage, org); err != nil {
		return err
	}
	return s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		now := s.now()
		row, err := q.New(tx).RemoveWebhook(ctx, q.RemoveWebhookParams{OrgID: org, ID: id, RemovedAt: &now})
		if err != nil {
			return tenants.Found(err, "webhook")
		}
		if err := q.New(tx).EndDeliveries(ctx, q.EndDeliveriesParams{OrgID: org, WebhookID: id}); err != nil {
			return fmt.Errorf("hook: end deliveries: %w", err)
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: "webhook.remove", Target: ids.Format(Prefix, id), Before: map[string]string{"url": row.Url}, At: now})
	})
}

// Test queues an event of kind "test" for one webhook.
func (s *Service) Test(ctx context.Context, by tenants.Actor, org, id ids.ID) error {
	if err := by.Require(tenants.CapsManage, org); err != nil {
		return err
	}
	return s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		e := Event{ID: ids.New(), Org: org, Kind: "test", At: s.now(), Data: map[string]string{"message": "This is a test. Nothing happened."}}
		n, err := queue(ctx, tx, e, id)
		if err == nil && n == 0 {
			return fault.New(fault.NotFound, "There is no such webhook.").WithCode("not_found")
		}
		return err
	})
}

// Event is what happened. Its id is the receiver's key: it may come twice, with the same id.
type Event struct {
	ID   ids.ID
	Org  ids.ID
	Kind string // noun.verb
	At   time.Time
	Data any // marshalled to JSON
}

// Queue sends an event to every webhook of its organization, in the caller's transaction of the system.
func Queue(ctx context.Context, tx q.DBTX, e Event) error {
	_, err := queue(ctx, tx, e, ids.Nil)
	return err
}

func queue(ctx context.Context, tx q.DBTX, e Event, only ids.ID) (int64, error) {
	body, err := json.Marshal(struct {
		ID        string    `json:"id"`
		Type      string    `json:"type"`
		CreatedAt time.Time `json:"created_at"`
		OrgID     string    `json:"org_id"`
		Data      any       `json:"data"`
	}{ids.Format(EventPrefix, e.ID), e.Kind, e.At.UTC(), ids.Format(ids.Org, e.Org), e.Data})
	if err != nil {
		return 0, fmt.Errorf("hook: %s: %w", e.Kind, err)
	}
	n, err := q.New(tx).QueueDeliveries(ctx, q.QueueDeliveriesParams{OrgID: e.Org, EventID: e.ID, Kind: e.Kind, Body: string(body), Now: e.At, OneWebhook: only})
	if err != nil {
		return 0, fmt.Errorf("hook: queue: %w", err)
	}
	return n, nil
}
