package domain

import (
	"maps"
	"slices"
	"time"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/web/admin"
)

// hardware is what an agent tells of its host beyond GPUs.
func (m *machines) hardware(out *admin.Host, o *wire.Observed) {
	for _, p := range o.Problems {
		out.Problems = append(out.Problems, admin.Problem{Subject: p.Subject, Text: p.Message, Fatal: p.Fatal, Since: milli(p.SinceMS)})
	}
	for _, n := range o.NICs {
		out.NICs = append(out.NICs, admin.NIC{Name: n.Name, Gbps: n.Gbps, RDMA: n.RDMA, Up: n.Up})
	}
	for _, tool := range slices.Sorted(maps.Keys(o.Toolchain)) {
		out.Toolchain = append(out.Toolchain, tool+" "+o.Toolchain[tool])
	}
	for _, l := range o.Links {
		out.Fabric = append(out.Fabric, admin.FabricLink{Peer: m.hostName(l.Peer), Gbps: l.Gbps, RTT: time.Duration(l.RTT) * time.Microsecond, At: milli(l.AtMS)})
	}
}

// hostName is the name of a host by its id as agents write it; hosts that are gone keep the id.
func (m *machines) hostName(id string) string {
	for _, h := range m.hosts {
		if h.ID.String() == id || ids.Format(ids.Host, h.ID) == id {
			return h.Name
		}
	}
	return id
}
