package recipe

import (
	"maps"
	"slices"

	"millrace/agents/wire"
	"millrace/internal/fault"
	"millrace/serving/engine"
)

// Place is where a shard of a unit is put: what a recipe cannot know.
type Place struct {
	Unit     string   // name of the shard's engine for its peers, unique in the fleet
	Head     string   // unit of the replica's rank 0; used when there are several hosts
	Rank     int      // of this host among the replica's
	Hosts    int      // of the replica; 0 is as good as 1
	GPUs     []int    // of this host
	Host     Fabric   // this host
	First    Fabric   // the host of rank 0; used when there are several
	Local    bool     // the whole unit is on this host: its engines meet on loopback
	Apart    bool     // prefill and decode are in different scale-up domains
	Expert   int      // EP size when it is not the recipe's
	Encoders []string // root URLs of the unit's encoders
}

// Fabric is how a unit's peers reach a host.
type Fabric struct {
	Address   string
	Interface string
	RDMA      []string // devices for transfers, nearest to the GPUs first
	Ports     int      // first of engine.PortsPerShard that are this shard's own
	Ascend    bool
}

// stopSeconds is how long an engine may go on with what runs after SIGTERM; the agent has let its own attempts end before.
const stopSeconds = 10

// Render gives the engine of one shard. It is pure: the same recipe and place give the same engine.
func (r *Recipe) Render(role string, at Place) (engine.Spec, error) {
	pool, ok := r.Pool(role)
	if !ok {
		return engine.Spec{}, fault.New(fault.Invalid, "Recipe %s has no pool for %s.", r.Name, role)
	}
	s := engine.Spec{
		Model: r.Model.Name, ModelPath: r.Model.Path, Context: r.Model.Context, Slots: pool.Slots, Queue: pool.Queue,
		HostCache: int64(pool.HostCacheGiB) << 30, Elastic: pool.Elastic, Extra: slices.Clone(pool.Flags), Env: maps.Clone(pool.Env),
		Devices: slices.Clone(at.GPUs), Ascend: at.Host.Ascend, Drain: stopSeconds, Container: r.Container,
	}
	if role != Whole {
		s.Role = role
	}
	var err error
	if s.Parallel, err = pool.shape(r.Name, at.Expert); err != nil {
		return engine.Spec{}, err
	}
	if err := r.fits(pool, s.Parallel, at); err != nil {
		return engine.Spec{}, err
	}
	if simulated := r.Engine == string(engine.Sim); !at.Local || simulated { // simulated hosts share one machine's loopback
		s.Address, s.Interface, s.RDMA = at.Host.Address, at.Host.Interface, slices.Clone(at.Host.RDMA)
	}
	if at.Hosts > 1 {
		s.Nodes = engine.Nodes{Count: at.Hosts, Rank: at.Rank, Master: at.First.Address, Port: engine.MasterPort(at.First.Ports)}
		s.Head = at.Head
	}
	_, encoder := r.Pool(Encoder)
	if encoder && role != Encoder {
		s.Vision, s.Encoders = true, slices.Clone(at.Encoders)
	}
	if role != Encoder {
		s.Deterministic = r.Deterministic
		if sp := r.Speculative; sp != nil {
			s.Speculative = &engine.Speculative{Method: sp.Method, Draft: sp.Draft, Model: sp.Model}
		}
	}
	s.Transfer = r.transfer(at)
	return s, nil
}

// transfer is nil where nothing is handed over. Where the peers must know an engine before it answers, its id is pinned.
func (r *Recipe) transfer(at Place) *engine.Transfer {
	t := r.Transfer
	if t == nil {
		return nil
	}
	out := &engine.Transfer{Backend: t.Backend, Mode: t.Mode, Port: engine.TransferPort(engine.Family(r.Engine), t.Backend, at.Host.Ports), Apart: at.Apart}
	if t.Mode == "push" {
		out.Engine = at.Unit
	}
	return out
}

// shape is the pool's parallel sizes, or those of a smaller EP size that it may shrink to.
func (p *Pool) shape(recipe string, expert int) (engine.Parallel, error) {
	q := engine.Parallel(p.Parallel)
	if expert == 0 || expert == q.Expert {
		return q, nil
	}
	if !slices.Contains(p.ExpertTo, expert) || q.Expert%expert != 0 {
		return q, fault.New(fault.Invalid, "Recipe %s does not allow an EP size of %d for %s.", recipe, expert, p.Role)
	}
	by := q.Expert / expert
	switch {
	case q.Data > 1 && q.Data%by == 0:
		q.Data /= by
	case q.Tensor > 1 && q.Tensor%by == 0:
		q.Tensor /= by
	default:
		return q, fault.New(fault.Invalid, "Recipe %s cannot be shrunk to an EP size of %d: neither its data nor its tensor parallelism is a multiple of %d.", recipe, expert, by)
	}
	q.Expert = expert
	return q, nil
}

// fits looks whether the place has the GPUs and addresses that the shape needs.
func (r *Recipe) fits(p *Pool, q engine.Parallel, at Place) error {
	hosts := max(at.Hosts, 1)
	simulated := r.Engine == string(engine.Sim)
	switch {
	case !simulated && len(at.GPUs)*hosts != q.GPUs():
		return fault.New(fault.Invalid, "A replica of %s for %s takes %d GPUs, not %d on each of %d hosts.", r.Name, p.Role, q.GPUs(), len(at.GPUs), hosts)
	case at.Rank < 0 || at.Rank >= hosts:
		return fault.New(fault.Invalid, "Rank %d is none of %d hosts.", at.Rank, hosts)
	case hosts > 1 && (at.First.Address == "" || at.First.Ports == 0), hosts > 1 && at.Host.Address == "":
		return fault.New(fault.Invalid, "A replica over %d hosts needs the hosts' addresses in the fabric: none of their network interfaces has one.", hosts)
	case r.Transfer != nil && at.Host.Ports == 0:
		return fault.New(fault.Invalid, "An engine that hands its cache over needs ports in the fabric.")
	case r.Transfer != nil && !at.Local && at.Host.Address == "":
		return fault.New(fault.Invalid, "An engine that hands its cache over to another host needs an address in the fabric: none of the host's network interfaces has one.")
	}
	return nil
}

// FabricOf reads what peers need from a host's inventory: the fastest interface with an address that is up, those nearest to
// the GPUs first, and the RDMA devices next to these.
func FabricOf(inv *wire.Inventory, gpus []int, ports int) Fabric {
	f := Fabric{Ports: ports}
	near := map[string]int{} // interface: how near, 0 = nearest
	for _, g := range inv.GPUs {
		if !slices.Contains(gpus, g.Index) {
			continue
		}
		f.Ascend = f.Ascend || len(g.Arch) >= 6 && g.Arch[:6] == "ascend"
		for i, name := range g.NICs {
			if was, known := near[name]; !known || i < was {
				near[name] = i
			}
		}
	}
	nics := slices.DeleteFunc(slices.Clone(inv.NICs), func(n wire.NIC) bool { return !n.Up })
	rank := func(n wire.NIC) int {
		if i, known := near[n.Name]; known {
			return i
		}
		return len(inv.NICs)
	}
	slices.SortStableFunc(nics, func(a, b wire.NIC) int {
		if a.Gbps != b.Gbps {
			return b.Gbps - a.Gbps
		}
		return rank(a) - rank(b)
	})
	for _, n := range nics {
		if n.Address != "" && f.Address == "" {
			f.Address, f.Interface = n.Address, n.Name
		}
		if _, close := near[n.Name]; n.RDMA != "" && (close || len(near) == 0) {
			f.RDMA = append(f.RDMA, n.RDMA)
		}
	}
	return f
}
