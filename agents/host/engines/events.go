package engines

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
)

// pollTimeout bounds one poll for cache events.
const pollTimeout = 5 * time.Second

// poller is a driver whose engine's cache events are polled. There may be one reader, and this is it.
type poller interface {
	PollEvents(ctx context.Context, c *http.Client, base string) (kvevent.Polled, error)
}

// subscribers listen for the cache events of each rank on this host; none when the engine publishes none.
func (l *life) subscribers() (all []*kvevent.Subscriber, err error) {
	if l.spec.KVPort == 0 {
		return nil, nil
	}
	first, ranks := l.spec.Ranks()
	for n := range max(ranks, l.spec.Elastic) {
		sub, err := kvevent.NewSubscriber(kvevent.SubscriberConfig{
			Endpoint: zmq(l.spec.KVPort + n), Bind: true, Replay: zmq(l.spec.ReplayPort + n), Rank: first + n})
		if err != nil {
			return all, err
		}
		all = append(all, sub)
	}
	return all, nil
}

// follow puts on the board what the engine tells of its cache. Of an adopted engine the board says nothing before the first
// event: whoever remembers its blocks is still right.
func (l *life) follow(ctx context.Context, eng ids.ID, subs []*kvevent.Subscriber, adopted bool) {
	head := ids.Nil
	if l.spec.Silent() {
		head, _ = ids.Parse(ids.Unit, l.spec.Head) // without it nobody is sent to these ranks for what they hold
	}
	begin := sync.OnceFunc(func() { l.sup.cfg.Board.Cache(l.id, eng, head) })
	tell := func(up kvevent.Update) {
		begin()
		l.sup.cfg.Board.Blocks(l.id, eng, up)
	}
	polled, polls := l.driver.(poller)
	polls = polls && l.driver.Caps().Polled && l.spec.Role != engine.Encoder && !l.spec.Silent()
	if (len(subs) > 0 || polls) && !adopted {
		begin()
	}
	for _, sub := range subs {
		l.helpers.Go(func() { _ = sub.Run(ctx, tell) }) // its error is ctx's
	}
	if polls {
		l.helpers.Go(func() { l.pollEvents(ctx, polled, tell) })
	}
}

// pollEvents asks every round. An answer that cannot be read is a gap: the next one shows it.
func (l *life) pollEvents(ctx context.Context, from poller, tell func(kvevent.Update)) {
	round := time.NewTicker(wire.LoadInterval)
	defer round.Stop()
	var p kvevent.Poller
	client := l.client()
	for {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
		}
		asking, cancel := context.WithTimeout(ctx, pollTimeout)
		polled, err := from.PollEvents(asking, client, l.base())
		cancel()
		if errors.Is(err, engine.ErrUnsupported) {
			return
		}
		if err != nil {
			continue
		}
		for _, up := range p.Take(polled) {
			tell(up)
		}
	}
}
