package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Placement is an engine to be run on a host, without a planner: what `up` and an operator need.
type Placement struct {
	Host     string // name; the host is made when there is none, and runs the engine once it has joined
	Name     string // of the unit; the same name again changes it
	Model    ids.ID // whose requests it serves
	Engine   engine.Family
	Upstream string // the name the engine serves the model under
	Slot     int    // order on the host
	Spec     engine.Spec
}

const maxUnitName = 100

func (p *Placement) validate() error {
	if err := checkHostName(p.Host); err != nil {
		return err
	}
	if p.Name == "" || len(p.Name) > maxUnitName || strings.ContainsAny(p.Name, "~\r\n") {
		return fault.New(fault.Invalid, "Give the unit a name of at most %d characters.", maxUnitName).WithParam("name")
	}
	driver, err := engine.Lookup(p.Engine)
	if err != nil {
		return fault.Of(err).WithParam("engine")
	}
	if !driver.Caps().Supervised {
		return fault.New(fault.Invalid, "Engines of the family %q can be attached, not started.", p.Engine).WithParam("engine")
	}
	if p.Upstream == "" {
		return fault.New(fault.Invalid, "Say under which name the engine serves the model.").WithParam("upstream")
	}
	return nil
}

// audited is the placement without the values of the engine's environment, which may be keys.
func (p Placement) audited() Placement {
	env := make(map[string]string, len(p.Spec.Env))
	for name := range p.Spec.Env {
		env[name] = "(not logged)"
	}
	p.Spec.Env = env
	return p
}

// recipe is the stored form of recipes.spec: the engine's part. Cost model and topology join it beside.
type recipe struct {
	Engine engine.Spec `json:"engine"`
}

// PlaceSimple makes a host run an engine. Saying the same again changes nothing; something else under the same name
// replaces the engine.
func (h *Hub) PlaceSimple(ctx context.Context, p Placement, by tenants.Actor) (ids.ID, error) {
	if err := by.RequireOperator(); err != nil {
		return ids.Nil, err
	}
	if err := p.validate(); err != nil {
		return ids.Nil, err
	}
	spec, err := json.Marshal(recipe{p.Spec})
	if err != nil {
		return ids.Nil, err
	}
	var unit ids.ID
	changed := false
	err = h.inTx(ctx, func(tx pgx.Tx) error {
		query := q.New(tx)
		host, err := query.EnsureHost(ctx, q.EnsureHostParams{ID: ids.New(), Name: p.Host})
		if err != nil {
			return err
		}
		release, err := releaseFor(ctx, query, &p, spec)
		if err != nil {
			return err
		}
		unit, err = query.PlaceUnit(ctx, q.PlaceUnitParams{ID: ids.New(), Name: p.Name, ModelID: p.Model, ReleaseID: release,
			Engine: string(p.Engine), HostID: host, Slot: int32(p.Slot), UpstreamModel: p.Upstream})
		if changed = err == nil; !changed {
			if !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			unit, err = alreadyPlaced(ctx, query, p.Name)
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "unit.place", Target: ids.Format(ids.Unit, unit), At: h.cfg.Clock.Now().UTC(), After: p.audited()})
	})
	if err == nil && changed {
		h.notice()
	}
	return unit, err
}

// releaseFor finds or makes the recipe of this engine spec, and the model's release of it.
func releaseFor(ctx context.Context, query *q.Queries, p *Placement, spec []byte) (ids.ID, error) {
	sum := sha256.Sum256(append([]byte(p.Engine+"\x00"), spec...))
	recipe, err := query.EnsureRecipe(ctx, q.EnsureRecipeParams{ID: ids.New(), Name: string(p.Engine) + "/" + hex.EncodeToString(sum[:8]), Spec: spec})
	if err != nil {
		return ids.Nil, err
	}
	release, err := query.ReleaseOf(ctx, q.ReleaseOfParams{ModelID: p.Model, RecipeID: recipe})
	if errors.Is(err, pgx.ErrNoRows) {
		return query.InsertRelease(ctx, q.InsertReleaseParams{ID: ids.New(), ModelID: p.Model, RecipeID: recipe})
	}
	return release, err
}

func alreadyPlaced(ctx context.Context, query *q.Queries, name string) (ids.ID, error) {
	row, err := query.PlacedUnitByName(ctx, name)
	if err == nil && (row.HostID == nil || row.PlanID != nil) {
		return ids.Nil, fault.New(fault.Conflict, "There already is a unit %q, attached or of a plan.", name).WithCode("name_taken").WithParam("name")
	}
	return row.ID, err
}

// Host is a host as operators see it.
type Host struct {
	ID         ids.ID
	Name       string
	DataURL    string
	Version    string // of its agent
	Generation int64  // of what is desired
	Applied    int64  // the generation its agent has taken
	Observed   wire.Observed
	Cordoned   bool
	Joined     time.Time
	Seen       time.Duration // ago; negative = never
	Linked     bool          // its agent is there now
}

// linkedWithin is how recently a linked host was seen: every seeEvery, with some slack.
const linkedWithin = 3 * seeEvery

// Hosts lists the hosts by name.
func (h *Hub) Hosts(ctx context.Context, by tenants.Actor) ([]Host, error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	var rows []q.ListHostsRow
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err := h.cfg.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		rows, err = q.New(tx).ListHosts(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]Host, len(rows))
	for i, r := range rows {
		seen := time.Duration(r.SeenMs) * time.Millisecond
		out[i] = Host{ID: r.ID, Name: r.Name, DataURL: r.DataUrl, Version: r.AgentVersion, Generation: r.Generation, Applied: r.ObservedGeneration,
			Cordoned: r.Cordoned, Joined: r.JoinedAt, Seen: seen, Linked: seen >= 0 && seen < linkedWithin}
		if err := json.Unmarshal(r.Observed, &out[i].Observed); err != nil {
			h.cfg.Log.Warn("a host's observed state cannot be read", "host", r.Name, "error", err)
		}
	}
	return out, nil
}

// RemoveHost shuts a host out: its units are gone, its certificate is refused from now on, its link breaks.
func (h *Hub) RemoveHost(ctx context.Context, id ids.ID, by tenants.Actor) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	err := h.inTx(ctx, func(tx pgx.Tx) error {
		n, err := q.New(tx).RemoveHost(ctx, id)
		if err == nil && n == 0 {
			return fault.New(fault.NotFound, "There is no such host.").WithCode("host_not_found")
		}
		if err != nil {
			return err
		}
		if err := q.New(tx).RemoveHostUnits(ctx, id); err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "host.remove", Target: ids.Format(ids.Host, id), At: h.cfg.Clock.Now().UTC()})
	})
	if err == nil {
		h.notice()
	}
	return err
}
