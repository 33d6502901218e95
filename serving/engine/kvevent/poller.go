package kvevent

import "slices"

// Poller follows an engine whose events are polled: it notices lost events and engines that began anew, and keeps the ranks
// apart. One poller follows one engine, since each event is given once. The zero value is ready; it is not safe for
// concurrent use.
type Poller struct {
	next    int64 // id that is expected
	begun   bool
	epoch   uint64
	mappers map[int]*Mapper
	size    int
}

// maxPolledRanks bounds the ranks of one engine.
const maxPolledRanks = 512

// Take turns a poll's answer into updates, at most one of each rank. After a gap, or when the engine has begun anew, each
// is a reset first.
func (p *Poller) Take(polled Polled) []Update {
	if polled.First < 0 {
		return nil
	}
	reset := p.begun && polled.First != p.next
	var all []Update
	if reset {
		p.epoch++
		for rank := range p.mappers {
			all = append(all, Update{Epoch: p.epoch, Rank: rank, Reset: true, Seq: polled.Last, BlockSize: p.size})
		}
		clear(p.mappers)
	}
	p.begun, p.next = true, polled.Last+1
	for i := range polled.Events {
		e := &polled.Events[i]
		u := p.update(&all, e.Rank, polled.Last)
		if u == nil {
			continue
		}
		if e.Kind == Stored && e.BlockSize > 0 {
			p.size = e.BlockSize
		}
		u.Blocks = p.mappers[e.Rank].Apply(u.Blocks, e)
	}
	for i := range all {
		all[i].BlockSize = p.size
	}
	return slices.DeleteFunc(all, func(u Update) bool { return !u.Reset && len(u.Blocks) == 0 })
}

// update finds a rank's, and its mapper; nil for a rank that cannot be.
func (p *Poller) update(all *[]Update, rank int, seq int64) *Update {
	if rank < 0 || rank >= maxPolledRanks {
		return nil
	}
	if p.mappers == nil {
		p.mappers = map[int]*Mapper{}
	}
	if p.mappers[rank] == nil {
		p.mappers[rank] = &Mapper{}
	}
	for i := range *all {
		if (*all)[i].Rank == rank {
			return &(*all)[i]
		}
	}
	*all = append(*all, Update{Epoch: p.epoch, Rank: rank, Seq: seq})
	return &(*all)[len(*all)-1]
}
