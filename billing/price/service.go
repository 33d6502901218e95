package price

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Notifier sends notices: *bus.Bus. Gateways that miss one find the change by themselves a little later.
type Notifier interface {
	Publish(subject string, data []byte) error
}

// Service makes, cancels and lists versions. It is safe for concurrent use.
type Service struct {
	db     *db.DB
	clock  clock.Clock
	notify Notifier
	costs  Costs // nil = nothing is known of costs
}

// New makes the service.
func New(d *db.DB, c clock.Clock, notify Notifier) *Service {
	return &Service{db: d, clock: c, notify: notify}
}

// Create makes a version from a draft. Operators only. Prices that raise doubts are refused with a fault of kind Conflict
// and code confirm_prices until the draft's Confirm is the model's name. A moment that has a version already is a Conflict.
func (s *Service) Create(ctx context.Context, by tenants.Actor, d Draft) (Version, error) {
	if err := by.RequireOperator(); err != nil {
		return Version{}, err
	}
	v, err := d.version(s.clock.Now().UTC().Truncate(time.Microsecond))
	if err != nil {
		return Version{}, err
	}
	v.CreatedBy = by.Name()
	err = s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		model, err := q.New(tx).PricedModel(ctx, d.Model)
		if err != nil {
			return tenants.Found(err, "model")
		}
		if model.Free && !v.Free() {
			return fault.New(fault.Invalid, "%s is a free model: every price must be 0.", model.Name).WithParam("prices")
		}
		if n := len(v.Terms.Tiers); n > 0 && v.Terms.Tiers[n-1].Above >= model.ContextTokens {
			return fault.New(fault.Invalid, "%s takes at most %d tokens: no prompt reaches the tier above %d.", model.Name, model.ContextTokens,
				v.Terms.Tiers[n-1].Above).WithParam("tiers")
		}
		before, err := predecessor(ctx, tx, v)
		if err != nil {
			return err
		}
		if !model.Free {
			doubts, err := s.doubts(ctx, tx, before, &v)
			if err != nil {
				return err
			}
			if s.costs != nil && strings.TrimSpace(d.Confirm) != model.Name {
				p, err := s.preview(ctx, tx, &v)
				if err != nil {
					return err
				}
				doubts = append(doubts, p.Doubts...)
			}
			if err := confirm(doubts, model.Name, d.Confirm); err != nil {
				return err
			}
		}
		row, err := insertParams(v)
		if err != nil {
			return err
		}
		if _, err = q.New(tx).InsertPriceVersion(ctx, row); err != nil {
			return tenants.Taken(err, "There is a price from that moment on already.")
		}
		return s.audit(ctx, tx, by, "price.create", v, before)
	})
	if err != nil {
		return Version{}, err
	}
	s.tell(ctx)
	return v, nil
}

// creepSpan is how long ago prices are compared with too: many small steps are a large one.
const creepSpan = 30 * 24 * time.Hour

// doubts compares a version with the one it follows, and with what held a month before it.
func (s *Service) doubts(ctx context.Context, tx q.DBTX, before, v *Version) ([]string, error) {
	list := Doubts(before, v)
	if before == nil {
		return list, nil
	}
	was, err := monthBefore(ctx, tx, before, v.EffectiveAt)
	if err != nil || was.ID == before.ID {
		return list, err
	}
	for _, d := range Doubts(was, v) {
		if !slices.Contains(list, d) {
			list = append(list, "Against the price of "+was.EffectiveAt.Format("2 January 2006")+", "+d)
		}
	}
	return list, nil
}

// monthBefore is the version that held creepSpan before a moment: of before's book, else the standard one, else the book's first.
func monthBefore(ctx context.Context, tx q.DBTX, before *Version, at time.Time) (*Version, error) {
	since := at.Add(-creepSpan)
	if !before.EffectiveAt.After(since) {
		return before, nil
	}
	all, err := OfModels(ctx, tx, []ids.ID{before.Model})
	if err != nil {
		return nil, err
	}
	was := before
	for i := range slices.Backward(all) { // by book, and then by the moment
		if v := &all[i]; v.Book == before.Book && v.CancelledAt == nil && v.EffectiveAt.Before(was.EffectiveAt) {
			if was = v; !v.EffectiveAt.After(since) {
				return was, nil
			}
		}
	}
	if was.Book == Standard { // the model is younger than that
		return was, nil
	}
	standard, err := At(ctx, tx, before.Model, Standard, since) // what a book of its own began from
	if fault.Is(err, fault.NotFound) {
		return was, nil
	}
	return &standard, err
}

// predecessor is the version that v would follow: of its own book, else the standard ones; nil when there are none.
func predecessor(ctx context.Context, tx q.DBTX, v Version) (*Version, error) {
	before, err := At(ctx, tx, v.Model, v.Book, v.EffectiveAt)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &before, nil
}

func confirm(doubts []string, model, typed string) error {
	if len(doubts) == 0 || strings.TrimSpace(typed) == model {
		return nil
	}
	return fault.New(fault.Conflict, "Please look again: %s If it is meant, confirm by typing the model's name, %s.", strings.Join(doubts, " "), model).
		WithCode("confirm_prices").WithParam("confirm")
}

// Cancel takes back a version that lies at least CancelNotice ahead. Operators only. Later it is a Conflict.
func (s *Service) Cancel(ctx context.Context, by tenants.Actor, id ids.ID) (Version, error) {
	if err := by.RequireOperator(); err != nil {
		return Version{}, err
	}
	var v Version
	err := s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		if _, err := ByID(ctx, tx, id); err != nil {
			return err
		}
		row, err := q.New(tx).CancelPriceVersion(ctx, q.CancelPriceVersionParams{ID: id, NoticeSeconds: int64(CancelNotice / time.Second)})
		if fault.Is(tenants.Found(err, "price"), fault.NotFound) {
			if v, err = ByID(ctx, tx, id); err != nil || v.CancelledAt != nil {
				return err // a repetition finds it done
			}
			return fault.New(fault.Conflict, "The price is in effect, or begins within a minute: gateways may use it. Make a new version instead.").WithCode("price_in_effect")
		}
		if err != nil {
			return fmt.Errorf("price: cancel: %w", err)
		}
		if v, err = version(row); err != nil {
			return err
		}
		return s.audit(ctx, tx, by, "price.cancel", v, &v)
	})
	if err != nil {
		return Version{}, err
	}
	s.tell(ctx)
	return v, nil
}

// Timeline lists a model's versions in all books, cancelled ones too, newest first. Operators only: other customers'
// books are in it.
func (s *Service) Timeline(ctx context.Context, by tenants.Actor, model ids.ID) ([]Version, error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	var rows []q.PriceVersion
	err := s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		rows, err = q.New(tx).PriceTimeline(ctx, model)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("price: timeline: %w", err)
	}
	return versions(rows)
}

func (s *Service) audit(ctx context.Context, tx pgx.Tx, by tenants.Actor, action string, v Version, before *Version) error {
	c := audit.Change{Action: action, Target: ids.Format(ids.Price, v.ID), After: v, At: s.clock.Now().UTC()}
	if before != nil {
		c.Before = *before
	}
	return audit.Append(ctx, tx, by, c)
}

// tell makes gateways read the schedule at once. Call it after the commit.
func (s *Service) tell(ctx context.Context) {
	if err := s.notify.Publish(bus.NoticePrice, nil); err != nil {
		slog.WarnContext(ctx, "price: gateways were not told of a change; they notice by themselves", "cause", err)
	}
}
