package domain

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/hub"
	"millrace/agents/wire"
	"millrace/billing/price"
	"millrace/db"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/gate"
	"millrace/web/admin"
	"millrace/web/console"
	"millrace/web/session"
)

// serves reports whether a unit takes requests now. An attached engine that nobody has asked yet is believed to.
func serves(u *catalogue.Unit, states map[ids.ID]hub.LiveUnit) bool {
	if u.Handoff != nil {
		up := map[string]bool{}
		for _, p := range u.Parts {
			up[p.Role] = up[p.Role] || serves(p, states)
		}
		return up[engine.Decode] && (up[engine.Prefill] || u.Handoff.Alone() && u.MaxPrompt > 0)
	}
	live, heard := states[u.ID]
	return heard && live.Load.State == wire.StateReady || !heard && u.Attached
}

// timeline is the versions of one model that stand, of the books that matter, by rising moment.
type timeline []price.Version

// timelines reads the versions of every model in a customer's book and the standard one.
func (d *Deps) timelines(ctx context.Context, book string) (map[ids.ID]timeline, error) {
	models := d.Catalogue.Models()
	list := make([]ids.ID, len(models))
	for i, m := range models {
		list[i] = m.ID
	}
	var versions []price.Version
	err := d.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		versions, err = price.OfModels(ctx, tx, list)
		return err
	})
	out := map[ids.ID]timeline{}
	for _, v := range versions {
		if v.CancelledAt == nil && (v.Book == book || v.Book == price.Standard) {
			out[v.Model] = append(out[v.Model], v)
		}
	}
	return out, err
}

// at is the version in force at a moment: of the customer's book, else of the standard one. nil = none.
func (t timeline) at(book string, moment time.Time) *price.Version {
	for _, name := range []string{book, price.Standard} {
		for i := len(t) - 1; i >= 0; i-- {
			if t[i].Book == name && !t[i].EffectiveAt.After(moment) {
				return &t[i]
			}
		}
	}
	return nil
}

// next is the next published change of what is in force: a later version that then is. nil = none.
func (t timeline) next(book string, now time.Time) *price.Version {
	var moments []time.Time
	for _, v := range t {
		if v.EffectiveAt.After(now) {
			moments = append(moments, v.EffectiveAt)
		}
	}
	slices.SortFunc(moments, time.Time.Compare)
	is := t.at(book, now)
	for _, m := range moments {
		if then := t.at(book, m); is == nil || then.ID != is.ID {
			return then
		}
	}
	return nil
}

// Models are those with a price in force for the organization, by name.
func (c customer) Models(ctx context.Context, who session.Viewer) ([]console.Model, error) {
	if _, err := c.Tenants.Org(ctx, member(who), who.Org); err != nil {
		return nil, err
	}
	now, states := c.Clock.Now(), c.Fleet.Live().Units
	var book string
	err := c.DB.InTx(ctx, db.Org(who.Org).ReadOnly(), func(tx pgx.Tx) (err error) {
		book, err = price.BookOf(ctx, tx, who.Org, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	lines, err := c.timelines(ctx, book)
	if err != nil {
		return nil, err
	}
	out := make([]console.Model, 0, len(lines))
	for _, m := range c.Catalogue.Models() {
		v := lines[m.ID].at(book, now)
		if v == nil {
			continue
		}
		x := console.Model{Name: m.Name, Context: m.Context, MaxOutput: m.MaxOutput, Prices: v.Prices, Terms: termsOf(v), Version: v.ID, Since: v.EffectiveAt}
		if !gate.Serves(m.Units, usage.Priority) { // what nobody serves is not offered
			x.Terms.Priority, x.Terms.Batch = 0, 0
		}
		if n := lines[m.ID].next(book, now); n != nil {
			x.Next = &console.PriceAhead{Prices: n.Prices, Effective: n.EffectiveAt}
		}
		for _, u := range m.Units {
			if serves(u, states) {
				x.Available = true
				x.Simulated = x.Simulated || simulated(u.Driver.Family())
			}
		}
		out = append(out, x)
	}
	return out, nil
}

// Models are all models with their standard prices.
func (b business) Models(ctx context.Context) ([]admin.Model, error) {
	if err := operator(ctx).RequireOperator(); err != nil {
		return nil, err
	}
	lines, err := b.timelines(ctx, price.Standard)
	if err != nil {
		return nil, err
	}
	models := b.Catalogue.Models()
	out := make([]admin.Model, len(models))
	for i, m := range models {
		out[i] = b.modelOf(m, lines[m.ID])
	}
	return out, nil
}

func (b business) modelOf(m *catalogue.Model, t timeline) admin.Model {
	now := b.Clock.Now()
	x := admin.Model{ID: m.ID, Name: m.Name, Units: int64(len(m.Units))}
	for _, u := range m.Units {
		x.Simulated = x.Simulated || simulated(u.Driver.Family())
	}
	if v := t.at(price.Standard, now); v != nil {
		x.Priced, x.Prices, x.Since = true, v.Prices, v.EffectiveAt
	}
	if n := t.next(price.Standard, now); n != nil {
		x.Next = n.EffectiveAt
	}
	return x
}

// Model is one model with the versions of its standard price, newest first.
func (b business) Model(ctx context.Context, id ids.ID) (admin.ModelDetail, error) {
	by := operator(ctx)
	if err := by.RequireOperator(); err != nil {
		return admin.ModelDetail{}, err
	}
	models := b.Catalogue.Models()
	i := slices.IndexFunc(models, func(m *catalogue.Model) bool { return m.ID == id })
	if i < 0 {
		return admin.ModelDetail{}, fault.New(fault.NotFound, "There is no such model.").WithCode("model_not_found")
	}
	versions, err := b.Prices.Timeline(ctx, by, id)
	if err != nil {
		return admin.ModelDetail{}, err
	}
	var authors []string
	var t timeline
	for _, v := range slices.Backward(versions) {
		if v.CancelledAt == nil && v.Book == price.Standard {
			t = append(t, v)
			authors = append(authors, v.CreatedBy)
		}
	}
	names, err := b.names(ctx, authors)
	out := admin.ModelDetail{Model: b.modelOf(models[i], t)}
	for _, v := range slices.Backward(t) {
		out.Versions = append(out.Versions, admin.PriceVersion{ID: v.ID, Prices: v.Prices, Terms: termsOf(&v), Effective: v.EffectiveAt, Published: v.CreatedAt, By: names.of(v.CreatedBy), Note: v.Note})
	}
	return out, err
}
