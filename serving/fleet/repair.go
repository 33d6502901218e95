package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/serving/plan"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// repair makes a new plan of the same demands when capacity that the current plan counts on is lost, or capacity that it
// lacks has come. By the settings it commits it, or leaves it as a draft for an operator.
func (e *Executor) repair(ctx context.Context, w *world) error {
	now := e.cfg.Clock.Now()
	if w.plan == nil || now.Sub(e.tried) < e.cfg.Limits.Think {
		return nil
	}
	why := w.damage(e.cfg.Limits)
	if why == "" {
		why = w.shortage()
	}
	held, keep, anew := w.stuck()
	if why == "" {
		why = held
	}
	if why == "" {
		return nil
	}
	e.tried = now
	parent := w.parent().Without(anew...)
	parent.Units = append(parent.Units, keep...)
	made, err := plan.Make(w.planHosts(e.cfg.Limits, true), w.planDemands(w.plan.demands), parent, w.options(""))
	if err != nil {
		return fmt.Errorf("fleet: no plan for a repair: %w", err)
	}
	for i := range keep {
		if !slices.ContainsFunc(made.Units, func(u plan.Unit) bool { return u.ID == keep[i].ID }) {
			return nil // the planner would give it up again, and so on for ever
		}
	}
	if made.Frozen != "" || digest(made, nil) == digest(w.parent(), nil) {
		return nil
	}
	if len(keep) > 0 {
		made.Moves = made.Diff(w.parent())
	}
	did, err := e.propose(ctx, w, made, why)
	if errors.Is(err, errMoved) {
		return nil // somebody else has committed a plan: the next pass looks at it
	}
	if did && err == nil {
		e.done++
	}
	return err
}

// propose stores a repair, and commits it when the fleet may. did is false when it waits for an operator already.
func (e *Executor) propose(ctx context.Context, w *world, made *plan.Plan, why string) (did bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = e.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		query := q.New(tx)
		if err := query.LockPlans(ctx); err != nil { // as everybody does first who commits
			return err
		}
		if err := e.prove(ctx, query, w); err != nil {
			return err
		}
		by := tenants.System()
		id, err := query.DraftLike(ctx, q.DraftLikeParams{Digest: digest(made, w.plan.demands), ParentID: &w.plan.id})
		known := err == nil
		did = !known || w.settings.AutoRepair
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if !known {
			id = ids.New()
			number, err := w.insertPlan(ctx, query, id, ByRepair, made, w.plan.demands, why, by.Name())
			if err != nil {
				return err
			}
			if err := audit.Append(ctx, tx, by, audit.Change{Action: "plan.repair", Target: planName(number), At: e.cfg.Clock.Now().UTC(),
				After: map[string]any{"reason": why, "moves": made.Moves, "committed": w.settings.AutoRepair}}); err != nil {
				return err
			}
			e.cfg.Log.Info("fleet: a repair", "plan", number, "reason", why, "moves", len(made.Moves), "committed", w.settings.AutoRepair)
		}
		if !w.settings.AutoRepair {
			return nil
		}
		return commit(ctx, query, id, made, by.Name())
	})
	return did, err
}

// damage says what of the current plan's places cannot be used any more, the first of it; "" = nothing.
func (w *world) damage(l Limits) string {
	for i := range w.plan.body.Units {
		u := &w.plan.body.Units[i]
		if u.Ends != "" {
			continue
		}
		for _, p := range u.Pools {
			for _, r := range p.Replicas {
				for _, s := range r.Shards {
					if why := w.unusable(s, l); why != "" {
						return u.Name + ": " + why
					}
				}
			}
		}
	}
	return ""
}

func (w *world) unusable(s plan.Shard, l Limits) string {
	h := w.hosts[s.Host]
	switch {
	case h == nil:
		return "its host was removed"
	case h.SeenMs < 0 || millis(h.SeenMs) >= l.Repair:
		return "host " + h.Name + " is not heard of"
	case h.Draining:
		return "host " + h.Name + " is drained"
	case h.Away:
		return "host " + h.Name + " is in maintenance, or will be soon"
	}
	return h.broken(s.GPUs)
}

// shortage says what the current plan has less of than its demands; "" = nothing.
func (w *world) shortage() string {
	var texts []string
	for i := range w.plan.demands {
		d := &w.plan.demands[i]
		n := 0
		for j := range w.plan.body.Units {
			u := &w.plan.body.Units[j]
			if u.Model != d.Model || u.Release != d.Release || u.Ends != "" {
				continue
			}
			n++
			if shrunk(u) {
				texts = append(texts, u.Name+" runs on fewer GPUs than its recipe says")
			}
		}
		if n < d.Units {
			texts = append(texts, fmt.Sprintf("%s has %d of %d units", d.Name, n, d.Units))
		}
	}
	text := strings.Join(texts, "; ")
	return text[:min(len(text), MaxNote)]
}

func shrunk(u *plan.Unit) bool {
	for _, p := range u.Pools {
		for _, r := range p.Replicas {
			if r.Expert != 0 {
				return true
			}
		}
	}
	return false
}
