package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Limits of what operators say.
const (
	MaxUnits      = 1000 // of a demand
	MaxRegions    = 50
	MaxWeight     = 1000
	MaxNote       = 1000 // bytes
	MaxReason     = 500  // bytes
	MaxName       = 100  // bytes of a region, network or failure domain
	MaxSpares     = 512
	MaxListed     = 200 // plans, events
	maxWindows    = 100 // of maintenance ahead, a host
	longestWindow = 90 * 24 * time.Hour
)

// Service is what operators do with the fleet. Every function checks the actor itself. It is safe for concurrent use.
type Service struct {
	db     Database
	clock  clock.Clock
	limits Limits
}

// New makes one.
func New(d Database, c clock.Clock) *Service { return &Service{db: d, clock: c, limits: DefaultLimits} }

// Within gives it other limits than the default ones, before its first use: those of the executors.
func (s *Service) Within(l Limits) { s.limits = l }

func (s *Service) now() time.Time { return s.clock.Now().UTC() }

// view runs fn on one state of the database.
func (s *Service) view(ctx context.Context, by tenants.Actor, fn func(query *q.Queries) error) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.db.InTx(ctx, db.System().ReadOnly().Snapshot(), func(tx pgx.Tx) error { return fn(q.New(tx)) })
}

// change runs fn and writes what it did to the audit log, in one transaction. An empty action writes nothing.
func (s *Service) change(ctx context.Context, by tenants.Actor, fn func(query *q.Queries) (audit.Change, error)) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		done, err := fn(q.New(tx))
		if err != nil || done.Action == "" {
			return err
		}
		done.At = s.now()
		return audit.Append(ctx, tx, by, done)
	})
}

// world reads everything.
func (s *Service) world(ctx context.Context, query *q.Queries) (*world, error) {
	w, err := newReader(s.limits, nil).read(ctx, query)
	if err == nil {
		w.match()
	}
	return w, err
}

// Settings are what the fleet may do by itself, and what it keeps free.
type Settings struct {
	AutoRepair bool      // repairs of lost capacity are committed without asking
	Spares     int       // GPUs kept free in every domain …
	SparesFrom int       // … of at least this many
	MaxLost    int       // percent of hosts lost at once above which nothing moves
	By         string    // who changed them last; "" = nobody
	At         time.Time // when
}

func settingsOf(r q.FleetSettingsRow) Settings {
	return Settings{AutoRepair: r.AutoRepair, Spares: int(r.Spares), SparesFrom: int(r.SparesFrom), MaxLost: int(r.MaxLost), By: r.UpdatedBy, At: r.UpdatedAt}
}

// Settings gives them.
func (s *Service) Settings(ctx context.Context, by tenants.Actor) (out Settings, err error) {
	err = s.view(ctx, by, func(query *q.Queries) error {
		row, err := query.FleetSettings(ctx)
		out = settingsOf(row)
		return err
	})
	return out, err
}

// SetSettings changes them.
func (s *Service) SetSettings(ctx context.Context, by tenants.Actor, in Settings) error {
	switch {
	case in.Spares < 0 || in.Spares > MaxSpares:
		return fault.New(fault.Invalid, "Keep 0 to %d GPUs of a domain free.", MaxSpares).WithParam("spares")
	case in.SparesFrom < 1 || in.SparesFrom > 1<<20:
		return fault.New(fault.Invalid, "Say from how many GPUs on a domain keeps some free.").WithParam("spares_from")
	case in.MaxLost < 1 || in.MaxLost > 100:
		return fault.New(fault.Invalid, "Give 1 to 100 percent.").WithParam("max_lost_percent")
	}
	return s.change(ctx, by, func(query *q.Queries) (audit.Change, error) {
		was, err := query.FleetSettings(ctx)
		if err != nil {
			return audit.Change{}, err
		}
		err = query.SetFleetSettings(ctx, q.SetFleetSettingsParams{AutoRepair: in.AutoRepair, Spares: int32(in.Spares), SparesFrom: int32(in.SparesFrom),
			MaxLost: int32(in.MaxLost), UpdatedBy: by.Name()})
		in.By, in.At = by.Name(), s.now()
		return audit.Change{Action: "fleet.settings", Target: "fleet", Before: settingsOf(was), After: in}, err
	})
}

// missing turns "no row" into a NotFound.
func missing(err error, what, code string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.New(fault.NotFound, "There is no such %s.", what).WithCode(code)
	}
	return err
}

func noHost(err error) error { return missing(err, "host", "host_not_found") }

func noPlan(err error) error { return missing(err, "plan", "plan_not_found") }

func targetHost(id ids.ID) string { return ids.Format(ids.Host, id) }
