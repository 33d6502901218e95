package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/serving/recipe"
)

// Database is what the fleet needs of one: *db.DB.
type Database interface {
	InTx(ctx context.Context, s db.Scope, fn func(tx pgx.Tx) error) error
}

// leaveLead is how long before a maintenance window what is on the host moves away.
const leaveLead = time.Hour

// queryTimeout bounds one reading or writing of the fleet.
const queryTimeout = 15 * time.Second

// host is a machine as it was read.
type host struct {
	q.FleetHostsRow
	seen   wire.Observed
	lost   bool
	units  map[ids.ID]*wire.UnitObserved
	stray  bool           // it runs engines that are no rows of it: none of its GPUs is given out
	held   map[int]string // GPUs on which something runs or may run, and what
	known  map[int]*wire.GPU
	faults map[int]string // by GPU
	fault  string         // of the whole host
	slots  map[int32]bool // that rows have, shared by the hosts of one address in the fabric
}

// world is one state of the database.
type world struct {
	hosts    map[ids.ID]*host
	order    []*host // by name
	plan     *current
	units    []*unit
	byID     map[ids.ID]*unit
	others   []q.FleetUnitsRow // placed rows that no plan owns
	settings q.FleetSettingsRow
	recipes  map[ids.ID]*recipe.Recipe // by release
}

// reader reads worlds, and keeps what is dear to decode and rarely changes.
type reader struct {
	limits   Limits
	loads    Loads
	observed map[ids.ID]decoded
	recipes  map[ids.ID]*recipe.Recipe
}

type decoded struct {
	text []byte
	seen wire.Observed
}

// Loads tells how much runs in an engine now: the hub. known is false when nobody has told.
type Loads interface {
	Running(unit ids.ID) (requests int, known bool)
}

func newReader(l Limits, loads Loads) *reader {
	return &reader{limits: l, loads: loads, observed: map[ids.ID]decoded{}, recipes: map[ids.ID]*recipe.Recipe{}}
}

// read takes everything from one state of the database.
func (r *reader) read(ctx context.Context, query *q.Queries) (*world, error) {
	w := &world{hosts: map[ids.ID]*host{}, byID: map[ids.ID]*unit{}, recipes: r.recipes}
	var err error
	if w.settings, err = query.FleetSettings(ctx); err != nil {
		return nil, err
	}
	row, err := query.CurrentPlan(ctx)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	if err == nil {
		w.plan = &current{id: row.ID, number: row.Number, digest: row.Digest}
		if w.plan.body, w.plan.demands, err = readPlan(row.Body, row.Demands); err != nil {
			return nil, err
		}
	}
	hosts, err := query.FleetHosts(ctx, int64(leaveLead/time.Second))
	if err != nil {
		return nil, err
	}
	slots := map[string]map[int32]bool{}
	for i := range hosts {
		h := r.host(hosts[i])
		at := cmp.Or(recipe.FabricOf(&h.seen.Inventory, nil, 0).Address, h.ID.String())
		if slots[at] == nil {
			slots[at] = map[int32]bool{}
		}
		h.slots = slots[at]
		w.hosts[h.ID] = h
		w.order = append(w.order, h)
	}
	rows, err := query.FleetUnits(ctx)
	if err != nil {
		return nil, err
	}
	w.addRows(rows, r.loads)
	return w, r.readRecipes(ctx, query, w)
}

// readRecipes fetches the recipes of releases that were not met before: a release's recipe never changes.
func (r *reader) readRecipes(ctx context.Context, query *q.Queries, w *world) error {
	missing := map[ids.ID]bool{}
	need := func(release ids.ID) {
		if r.recipes[release] == nil {
			missing[release] = true
		}
	}
	for _, u := range w.units {
		need(u.release)
	}
	if w.plan != nil {
		for i := range w.plan.body.Units {
			need(w.plan.body.Units[i].Release)
		}
		for _, d := range w.plan.demands {
			need(d.Release)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	list := make([]ids.ID, 0, len(missing))
	for id := range missing {
		list = append(list, id)
	}
	rows, err := query.RecipeSources(ctx, list)
	if err != nil {
		return err
	}
	for _, row := range rows {
		parsed, err := recipe.Reread([]byte(row.Source))
		if err != nil {
			return fmt.Errorf("fleet: recipe %s: %w", row.Name, err)
		}
		r.recipes[row.ReleaseID] = parsed
	}
	return nil
}

func (r *reader) host(row q.FleetHostsRow) *host {
	kept, ok := r.observed[row.ID]
	if !ok || !bytes.Equal(kept.text, row.Observed) {
		kept = decoded{text: row.Observed}
		if err := json.Unmarshal(row.Observed, &kept.seen); err != nil {
			slog.Warn("fleet: a host's observed state cannot be read", "host", row.Name, "cause", err)
		}
		r.observed[row.ID] = kept
	}
	h := &host{FleetHostsRow: row, seen: kept.seen, units: map[ids.ID]*wire.UnitObserved{}, held: map[int]string{}, known: map[int]*wire.GPU{}, faults: map[int]string{}}
	h.Observed = nil // read
	h.lost = row.SeenMs < 0 || time.Duration(row.SeenMs)*time.Millisecond >= r.limits.Lost
	for i := range h.seen.Units {
		h.units[h.seen.Units[i].Unit] = &h.seen.Units[i]
	}
	for i := range h.seen.GPUs {
		g := &h.seen.GPUs[i]
		h.known[g.Index] = g
		if g.Fault != "" {
			h.faults[g.Index] = g.Fault
		}
	}
	for _, p := range h.seen.Problems {
		h.problem(p)
	}
	return h
}

// problem takes a fatal problem's subject out of use.
func (h *host) problem(p wire.Problem) {
	if !p.Fatal {
		return
	}
	gpu := -1
	if n, err := fmt.Sscanf(p.Subject, "gpu:%d", &gpu); n == 1 && err == nil {
		h.faults[gpu] = p.Message
		return
	}
	if p.Subject == "host" {
		h.fault = p.Message
	}
}

// broken says why some of the GPUs cannot be used; "" = they can.
func (h *host) broken(gpus []int) string {
	if h.fault != "" {
		return "host " + h.Name + ": " + h.fault
	}
	for _, g := range gpus {
		if why := h.faults[g]; why != "" {
			return fmt.Sprintf("GPU %d of host %s: %s", g, h.Name, why)
		}
		if len(h.known) > 0 && h.known[g] == nil {
			return fmt.Sprintf("GPU %d of host %s is not there any more", g, h.Name)
		}
	}
	return ""
}
