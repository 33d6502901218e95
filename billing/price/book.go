package price

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

const (
	// pollEvery bounds how long a lost notice can hide a change. It stays well below CancelNotice.
	pollEvery = 10 * time.Second
	// readTimeout bounds one reading of the schedule.
	readTimeout = 10 * time.Second
)

// Subscriber hears notices: *bus.Bus.
type Subscriber interface {
	Subscribe(subject string, fn func(subject string, data []byte)) (stop func(), err error)
}

// Book is the whole schedule in memory, future versions included, so that a price takes effect everywhere at its moment
// without a message. While the database is away it stays as it is. It is safe for concurrent use.
type Book struct {
	db       *db.DB
	schedule atomic.Pointer[schedule]
	changed  chan struct{}
	unhear   func()
	stop     context.CancelFunc
	done     sync.WaitGroup
}

type bookKey struct {
	model ids.ID
	book  string
}

// schedule is never changed once it is made.
type schedule struct {
	versions  map[bookKey][]*Version // ascending by EffectiveAt
	byID      map[ids.ID]*Version
	contracts Contracts
}

// OpenBook reads the schedule and keeps it fresh until Close.
func OpenBook(ctx context.Context, d *db.DB, notices Subscriber) (*Book, error) {
	b := &Book{db: d, changed: make(chan struct{}, 1)}
	unhear, err := notices.Subscribe(bus.NoticePrice, func(string, []byte) {
		select {
		case b.changed <- struct{}{}:
		default: // a reading that has yet to begin will see this change too
		}
	})
	if err != nil {
		return nil, fmt.Errorf("price: %w", err)
	}
	b.unhear = unhear
	if err := b.read(ctx); err != nil {
		unhear()
		return nil, err
	}
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.done.Go(func() { b.follow(ctx) })
	return b, nil
}

// Close stops following changes. The book keeps answering.
func (b *Book) Close() {
	b.unhear()
	b.stop()
	b.done.Wait()
}

func (b *Book) follow(ctx context.Context) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-b.changed:
		}
		if err := b.read(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "price: the schedule could not be read; the last one holds", "cause", err)
		}
	}
}

func (b *Book) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var rows []q.PriceVersion
	var agreed []q.PriceContract
	err := b.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		if rows, err = q.New(tx).PriceSchedule(ctx); err != nil {
			return err
		}
		agreed, err = q.New(tx).PriceContractSchedule(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("price: read the schedule: %w", err)
	}
	s := &schedule{versions: make(map[bookKey][]*Version), byID: make(map[ids.ID]*Version, len(rows)), contracts: contracts(agreed)}
	for _, r := range rows {
		v, err := version(r)
		if err != nil {
			return err
		}
		key := bookKey{v.Model, v.Book}
		s.versions[key] = append(s.versions[key], &v)
		s.byID[v.ID] = &v
	}
	b.schedule.Store(s)
	return nil
}

// Quote gives the prices in effect for an organization and a model at a moment and a service tier: in the book of the
// contract that holds then, else in its own, else in Standard. A model without any is a fault of kind NotFound, a tier that
// is not offered one of kind Invalid. It does not block.
func (b *Book) Quote(org, model ids.ID, own string, at time.Time, s usage.Service) (usage.Quote, error) {
	v, err := b.At(model, b.BookOf(org, own, at), at)
	if err != nil {
		return usage.Quote{}, err
	}
	quote, offered := v.Quote(at, s)
	if !offered {
		return usage.Quote{}, fault.New(fault.Invalid, "This model is not offered at the service tier %s. Leave service_tier out, or send \"default\".", s).
			WithCode("unsupported_value").WithParam("service_tier")
	}
	return quote, nil
}

// BookOf is the book that holds for an organization at a moment: its contract's, else its own.
func (b *Book) BookOf(org ids.ID, own string, at time.Time) string {
	if book, ok := b.schedule.Load().contracts.Book(org, at); ok {
		return book
	}
	return own
}

// At is the version behind a Quote. It is shared: do not change it.
func (b *Book) At(model ids.ID, book string, at time.Time) (*Version, error) {
	s := b.schedule.Load()
	for _, name := range [...]string{book, Standard} {
		list := s.versions[bookKey{model, name}]
		for i := len(list) - 1; i >= 0; i-- { // the one in effect is at the end, but for those that are planned
			if !list[i].EffectiveAt.After(at) {
				return list[i], nil
			}
		}
	}
	return nil, unpriced()
}

// ByID gives a version that stands, nil when the book does not know it. It is shared: do not change it.
func (b *Book) ByID(id ids.ID) *Version { return b.schedule.Load().byID[id] }
