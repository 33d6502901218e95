package domain

import (
	"strings"
	"sync"
	"time"

	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/web/live"
)

// Subscriber hears the bus: *bus.Bus.
type Subscriber interface {
	Subscribe(subject string, fn func(subject string, data []byte)) (stop func(), err error)
}

// loadEvery is how often units' loads, told four times a second each, reach open pages.
const loadEvery = time.Second

// Nudge tells open pages what the bus says has changed, until stop. facts is the connection of fleet facts.
func Nudge(notices, facts Subscriber, pages *live.Hub, c clock.Clock) (stop func(), err error) {
	n := &nudger{pages: pages, clock: c}
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, x := range []struct {
		from    Subscriber
		subject string
		fn      func(subject string, data []byte)
	}{
		{notices, bus.LivePrefix + "*", n.rated}, {notices, bus.NoticeBudget, n.budget}, {notices, bus.NoticeKey, n.key},
		{notices, bus.NoticeCatalogue, n.catalogue}, {facts, bus.FleetLoad, n.load},
	} {
		s, err := x.from.Subscribe(x.subject, x.fn)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, s)
	}
	return stop, nil
}

type nudger struct {
	pages *live.Hub
	clock clock.Clock
	mu    sync.Mutex
	last  time.Time // when a load was passed on
}

// rated: requests of an organization, or of any, were rated.
func (n *nudger) rated(subject string, _ []byte) {
	if subject == bus.LiveOperator {
		n.pages.Publish(live.Fleet, live.Usage)
		n.pages.Publish(live.Fleet, live.Ops)
		return
	}
	if id, err := ids.Parse(ids.Org, strings.TrimPrefix(subject, bus.LivePrefix)); err == nil {
		n.pages.Publish(live.Org(id), live.Usage)
	}
}

// budget: an organization's caps or credit changed.
func (n *nudger) budget(_ string, data []byte) {
	if id, err := ids.Parse(ids.Org, string(data)); err == nil {
		n.pages.Publish(live.Org(id), live.Credit)
		n.pages.Publish(live.Org(id), live.Keys)
	}
}

// key: an organization's keys changed. A single key is named by its hash, which does not tell whose it is.
func (n *nudger) key(_ string, data []byte) {
	if !strings.HasPrefix(string(data), ids.Org+"_") {
		return
	}
	if id, err := ids.Parse(ids.Org, string(data)); err == nil {
		n.pages.Publish(live.Org(id), live.Keys)
	}
}

func (n *nudger) catalogue(string, []byte) {
	n.pages.Publish(live.Fleet, live.Hosts)
	n.pages.Publish(live.Fleet, live.Units)
}

func (n *nudger) load(string, []byte) {
	now := n.clock.Now()
	n.mu.Lock()
	due := now.Sub(n.last) >= loadEvery
	if due {
		n.last = now
	}
	n.mu.Unlock()
	if due {
		n.pages.Publish(live.Fleet, live.Units)
	}
}
