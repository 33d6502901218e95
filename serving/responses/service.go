package responses

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/gate"
	"millrace/serving/protocol"
	dialect "millrace/serving/protocol/responses"
	"millrace/tenants/keys"
)

// Retention is how long a response is kept, and a conversation after its last use.
const Retention = 30 * 24 * time.Hour

// Limits and times.
const (
	maxChain     = 1000 // responses that one continues from
	maxKeptItems = 16 << 10
	keepTimeout  = 3 * time.Second // the end of an answer waits for so long
	sweepEvery   = time.Minute
	expireRows   = 1000 // rows deleted in one transaction
)

// Options of a service. All but Refuse are needed.
type Options struct {
	DB     *db.DB
	Clock  clock.Clock
	Gate   *gate.Gate
	Sealer protocol.Sealer
	Frame  func(err error) []byte // an error as the API shows it
	Refuse bool                   // tools that OpenAI runs are refused, not dropped
}

// Service is the memory of the Responses API. It is safe for concurrent use.
type Service struct {
	o     Options
	owner ids.ID // this process

	mu        sync.Mutex
	runs      map[ids.ID]*run
	running   places          // runs
	following places          // streams of background responses that are given
	near      map[ids.ID]bool // organizations that are near what they may keep, when they were last heard of
	draining  bool
	tasks     sync.WaitGroup
}

// New makes a service. Run must be running for background responses to be kept alive.
func New(o Options) *Service {
	return &Service{o: o, owner: ids.New(), runs: map[ids.ID]*run{}, running: places{}, following: places{}, near: map[ids.ID]bool{}}
}

// Call is one request.
type Call struct {
	ID      ids.ID
	Caller  keys.Principal
	Request *dialect.Request
	Session string // a hint for routing, where the request has none
	Batch   bool   // it is a line of a batch: the key's limits are not for it
}

func (s *Service) seal(c *Call) *protocol.ReasoningSeal {
	return &protocol.ReasoningSeal{Sealer: s.o.Sealer, Org: c.Caller.Org}
}

func (s *Service) now() time.Time { return s.o.Clock.Now().UTC() }

// read runs fn in a transaction that sees an organization only.
func (s *Service) read(ctx context.Context, org ids.ID, fn func(rows *q.Queries) error) error {
	return s.o.DB.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error { return fn(q.New(tx)) })
}

// Run keeps this process's responses alive, ends orphans and deletes what has expired, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
			err = s.Beat(ctx)
		case <-sweep.C:
			err = errors.Join(s.Rescue(ctx), s.Expire(ctx))
		}
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "responses: what is kept could not be looked after just now", "cause", err)
		}
	}
}

// Expire deletes what is past its time.
func (s *Service) Expire(ctx context.Context) error {
	for {
		var gone int
		err := s.o.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
			rows := q.New(tx)
			responses, err := rows.ResponsesExpire(ctx, q.ResponsesExpireParams{Now: s.now(), MaxRows: expireRows})
			if err != nil {
				return err
			}
			conversations, err := rows.ConversationsExpire(ctx, q.ConversationsExpireParams{Now: s.now(), MaxRows: expireRows})
			if err != nil {
				return err
			}
			gone = max(len(responses), len(conversations))
			freed := map[ids.ID]int64{}
			for _, r := range responses {
				freed[r.OrgID] += r.Bytes
			}
			for _, c := range conversations {
				freed[c.OrgID] += c.Bytes
			}
			return countFreed(ctx, rows, freed)
		})
		if err != nil || gone < expireRows {
			return err
		}
	}
}

// responseID reads an id that a client gives; nil = it can be none of ours.
func responseID(text string) ids.ID {
	id, err := ids.Parse("resp", text)
	if err != nil {
		return ids.Nil
	}
	return id
}

func notFound(id string) error {
	return fault.New(fault.NotFound, "Response with id %q not found.", shown(id)).WithCode("response_not_found").WithParam("response_id")
}

func previousNotFound(id string) error {
	return fault.New(fault.NotFound, "Previous response with id %q not found.", shown(id)).
		WithCode("previous_response_not_found").WithParam("previous_response_id")
}

const maxShown = 80 // bytes

func shown(id string) string {
	if len(id) > maxShown {
		return id[:maxShown] + "..."
	}
	return id
}
