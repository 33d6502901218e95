package credit

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/ids"
)

// Recall is the payload of bus.NoticeRecall: a gateway lacks money of these budgets before it refuses a request.
type Recall struct {
	From    ids.ID   `json:"from"` // the epoch that asks
	Org     ids.ID   `json:"org"`
	Budgets []ids.ID `json:"budgets"`
}

// pollSweeps is after how many sweeps changed caps are looked for: what bounds a lost notice.
const (
	pollSweeps = 3
	// pollOverlap covers transactions that were under way at the last poll.
	pollOverlap = time.Minute
)

// hear subscribes to the notices.
func (a *Allotments) hear() error {
	for subject, fn := range map[string]func(string, []byte){
		bus.NoticeRecall: a.onRecall, bus.NoticeReturned: a.onReturned, bus.NoticeBudget: a.onBudget,
	} {
		stop, err := a.cfg.Bus.Subscribe(subject, fn)
		if err != nil {
			for _, stop := range a.unhear {
				stop()
			}
			return err
		}
		a.unhear = append(a.unhear, stop)
	}
	return nil
}

// recall asks the other gateways for their idle money.
func (a *Allotments) recall(w *wallet, budgets []ids.ID) {
	a.stats.recalls.Add(1)
	data, err := json.Marshal(Recall{From: w.epoch.id, Org: w.org, Budgets: budgets})
	if err == nil {
		err = a.cfg.Bus.Publish(bus.NoticeRecall, data)
	}
	if err != nil {
		slog.Warn("credit: a recall could not be sent", "org", w.org, "cause", err)
	}
}

// onRecall returns what is idle of the budgets another gateway lacks.
func (a *Allotments) onRecall(_ string, data []byte) {
	var r Recall
	if err := json.Unmarshal(data, &r); err != nil {
		slog.Warn("credit: a recall cannot be read", "cause", err)
		return
	}
	e := a.epoch.Load()
	if r.From == e.id || e.over.Load() {
		return
	}
	s := e.shard(r.Org)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.wallets[r.Org]
	if w == nil {
		return
	}
	starts := w.recalls == nil
	for _, id := range r.Budgets {
		if p := w.pots[id]; p != nil && (p.free() > 0 || p.unsure) {
			if w.recalls == nil {
				w.recalls = make(map[ids.ID]bool)
			}
			w.recalls[id] = true
		}
	}
	if starts && w.recalls != nil && !a.spawn(func() { a.answerRecalls(w) }) {
		w.recalls = nil // Close returns everything
	}
}

// answerRecalls returns money until no recall is left, and tells those who wait.
func (a *Allotments) answerRecalls(w *wallet) {
	for {
		w.mu.Lock()
		budgets := w.recalls
		if len(budgets) == 0 {
			w.recalls = nil
			w.mu.Unlock()
			return
		}
		w.recalls = make(map[ids.ID]bool)
		w.mu.Unlock()
		err := a.returnNow(a.ctx, w, true, recalled(budgets))
		if err == nil {
			err = a.cfg.Bus.Publish(bus.NoticeReturned, []byte(ids.Format(ids.Org, w.org)))
		}
		if err != nil && a.ctx.Err() == nil {
			slog.Warn("credit: a recall could not be answered", "org", w.org, "cause", err)
		}
	}
}

// onReturned lets those who wait for other gateways' money look again.
func (a *Allotments) onReturned(_ string, data []byte) {
	a.withWallet(data, func(w *wallet) {
		for _, x := range w.waiting {
			x.parked = false
		}
	})
}

// onBudget makes caps and credit be read again.
func (a *Allotments) onBudget(_ string, data []byte) {
	a.withWallet(data, func(w *wallet) { w.stale = true })
}

// withWallet changes the wallet of the organization named by a notice, if there is one, and puts it to work. Whatever
// was refused may be had now.
func (a *Allotments) withWallet(data []byte, change func(w *wallet)) {
	org, err := ids.Parse(ids.Org, string(data))
	if err != nil {
		slog.Warn("credit: a notice names no organization", "cause", err)
		return
	}
	s := a.epoch.Load().shard(org)
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.wallets[org]; w != nil {
		change(w)
		for _, p := range w.pots {
			p.refusedUntil = time.Time{}
		}
		a.kick(w)
	}
}

// poll finds organizations whose caps changed without a notice.
func (a *Allotments) poll(e *epoch) {
	var orgs []ids.ID
	e.each(func(w *wallet) { orgs = append(orgs, w.org) })
	now := a.clock.Now()
	if len(orgs) == 0 {
		a.polled = now
		return
	}
	ctx, cancel := context.WithTimeout(a.ctx, txTimeout)
	defer cancel()
	var changed []ids.ID
	err := a.store.inTx(ctx, "look for changed caps", func(queries *q.Queries) (err error) {
		since := int64((now.Sub(a.polled) + pollOverlap) / time.Second)
		changed, err = queries.OrgsWithChangedCaps(ctx, q.OrgsWithChangedCapsParams{SinceSeconds: since, Orgs: orgs})
		return err
	})
	if err != nil {
		return // the sweep or a heartbeat tells of a database that is away
	}
	a.polled = now
	for _, org := range changed {
		s := e.shard(org)
		s.mu.Lock()
		if w := s.wallets[org]; w != nil {
			w.stale = true
			a.kick(w)
		}
		s.mu.Unlock()
	}
}
