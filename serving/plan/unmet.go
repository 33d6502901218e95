package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/agents/wire"
)

// tally counts refusals that are alike.
type tally struct {
	seen map[refused][]string // names by what is refused
}

// refused is a reason and what sort of thing it is about.
type refused struct {
	noun string
	reason
}

func (t *tally) add(noun, name string, r reason) {
	t.seen[refused{noun, r}] = append(t.seen[refused{noun, r}], name)
}

// texts gives the reasons, the most common first: "needs SM100 with CUDA 13.0; host h7 has SM90".
func (t *tally) texts() []string {
	keys := slices.Collect(maps.Keys(t.seen))
	slices.SortFunc(keys, func(a, b refused) int {
		return cmp.Or(cmp.Compare(len(t.seen[b]), len(t.seen[a])), cmp.Compare(a.noun, b.noun), cmp.Compare(a.want, b.want), cmp.Compare(a.is, b.is))
	})
	var all []string
	for _, k := range keys[:min(len(keys), maxReasons)] {
		text := k.is
		names := t.seen[k]
		if has, ok := strings.CutPrefix(text, "has "); ok {
			text = plural(k.noun, names, "has", "have") + " " + has
		} else {
			text = plural(k.noun, names, "is", "are") + " " + text
		}
		if k.want != "" {
			text = k.want + "; " + text
		}
		all = append(all, text)
	}
	return all
}

func plural(noun string, names []string, one, many string) string {
	if len(names) == 1 {
		return noun + " " + names[0] + " " + one
	}
	return fmt.Sprintf("%d %ss (%s) %s", len(names), noun, short(names), many)
}

// refusal says why units of a demand have no place, host by host and domain by domain.
func (m *maker) refusal(w *want, n int) []string {
	m.b.own = nil
	t := &tally{seen: map[refused][]string{}}
	for i := range m.b.hosts {
		h := &m.b.hosts[i]
		if r := w.d.refuses(h); r != nil {
			t.add("host", h.Name, *r)
		} else if w.gpus > 0 && len(h.GPUs) > 0 && !slices.ContainsFunc(h.GPUs, func(g wire.GPU) bool { return g.Domain != wire.DomainUnknown }) {
			t.add("host", h.Name, reason{"", "of unknown topology: the fabric does not tell its state"})
		}
	}
	for c := range m.b.cells {
		m.refuseCell(w, c, t)
	}
	m.refusePairs(w, t)
	texts := t.texts()
	if stay := m.waiting(w); stay != "" {
		texts = append([]string{stay}, texts[:min(len(texts), maxReasons-1)]...)
	}
	if len(m.b.hosts) == 0 {
		return []string{"there are no hosts"}
	}
	return texts
}

// waiting tells that running units keep GPUs that the new ones could have.
func (m *maker) waiting(w *want) string {
	old, leaving := 0, len(m.sets[w.index].leaving)
	for _, h := range m.units {
		if h.gone == "" && h.want == nil && h.unit.Model == w.d.Model {
			old++
		}
	}
	switch {
	case old > 0:
		return fmt.Sprintf("a new release is placed beside the running one, whose %s keep their GPUs until others have taken over: not enough are free for another unit of %s", units(old), gpus(w.gpus))
	case leaving > 0:
		return fmt.Sprintf("%s on leaving hosts stay: not enough GPUs are free for another unit of %s", units(leaving), gpus(w.gpus))
	}
	return ""
}

// refuseCell says why a domain has no place for the largest pool of a unit; nothing where it has one.
func (m *maker) refuseCell(w *want, c int, t *tally) {
	cl := &m.b.cells[c]
	n := &w.needs[0]
	open := slices.ContainsFunc(cl.slots, func(s int) bool { return w.ok[m.b.slots[s].host] })
	noun, name := "domain", cl.label
	if len(cl.slots) == 1 {
		noun, name = "host", m.b.hosts[m.b.slots[cl.slots[0]].host].Name
	}
	each, hosts := split(n.gpus, cl.host)
	want := fmt.Sprintf("a replica needs %s in one domain", gpus(n.gpus))
	switch {
	case !open || n.gpus == 0:
	case cl.size < n.domain:
		t.add(noun, name, reason{fmt.Sprintf("needs a domain of %s", gpus(n.domain)), fmt.Sprintf("has %d", cl.size)})
	case cl.size < n.gpus:
		t.add(noun, name, reason{want, fmt.Sprintf("has %d", cl.size)})
	case cl.room() < n.gpus && cl.limit < cl.size && cl.free >= n.gpus:
		t.add(noun, name, reason{want, fmt.Sprintf("has %d free beside %d spares", cl.room(), cl.size-cl.limit)})
	case cl.room() < n.gpus:
		t.add(noun, name, reason{want, fmt.Sprintf("has %d free", cl.room())})
	case m.b.fill(w, 0, c, 1, nil, -1) == nil:
		t.add(noun, name, reason{fmt.Sprintf("a replica needs %d on each of %d hosts of a domain", each, hosts), fmt.Sprintf("has %d free, differently spread", cl.room())})
	}
}
