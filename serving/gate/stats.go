package gate

import "sync/atomic"

// stats counts what happens to requests that several engines serve.
type stats struct {
	handed, alone, untold, again, replayed, unencoded atomic.Int64
}

// Stats is a reading of them, since the gateway's start.
type Stats struct {
	Handed    int64 // attempts at units whose engines hand prompts over
	Alone     int64 // prompts that a decode engine computed because no prefill engine had
	Untold    int64 // prefills that told nothing of where their cache is
	Again     int64 // further pairs, under new ids, before a first token
	Replayed  int64 // answers that another engine went on with
	Unencoded int64 // images that no encoder took
	Legs      int   // that run beside, or after, their requests
}

// Stats reads the counters.
func (g *Gate) Stats() Stats {
	s := &g.stats
	return Stats{Handed: s.handed.Load(), Alone: s.alone.Load(), Untold: s.untold.Load(), Again: s.again.Load(), Replayed: s.replayed.Load(),
		Unencoded: s.unencoded.Load(), Legs: g.Legs()}
}
