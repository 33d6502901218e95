package rate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// owed is what one ledger transaction charges: one per organization, and per month in which its requests started.
type owed struct {
	org   ids.ID
	month int64 // unix seconds of its first day
}

// total is the sum of what is owed.
type total struct {
	charged, overrun money.Nano
	requests         int
	txn              ids.ID
}

func compareOwed(a, b owed) int {
	return cmp.Or(compareIDs(a.org, b.org), cmp.Compare(a.month, b.month))
}

// post writes one ledger transaction per organization, and a further one where a batch goes over a month's turn: the
// charges, by the credit they use up, and the overrun.
func (p *pass) post(ctx context.Context) error {
	totals := map[owed]*total{}
	months := monthsOf(p.finals)
	of := func(e *entry) owed { return owed{e.ev.Org, months[e.day]} }
	for _, e := range p.finals {
		if e.cost == 0 {
			continue
		}
		key := of(e)
		t := totals[key]
		if t == nil {
			t = &total{txn: ids.At(p.now)}
			totals[key] = t
		}
		t.charged, t.overrun, t.requests = t.charged+e.charged, t.overrun+e.overrun, t.requests+1
		e.txn = t.txn
	}
	keys := slices.SortedFunc(maps.Keys(totals), compareOwed)
	if len(keys) == 0 {
		return nil
	}
	charges := make([]ledger.Charge, len(keys))
	for i, key := range keys {
		charges[i] = ledger.Charge{Org: key.org, Amount: totals[key].charged}
	}
	entries, err := p.ledger.Spend(charges)
	if err != nil {
		return err
	}
	txns := make([]ledger.Txn, len(keys))
	for i, key := range keys {
		t, list := totals[key], entries[i]
		if t.overrun > 0 {
			list = append(list, ledger.Debit(ledger.Overrun, t.overrun), ledger.Credit(ledger.Revenue, t.overrun))
		}
		txns[i] = ledger.Txn{ID: t.txn, Org: key.org, Kind: ledger.Usage, Memo: fmt.Sprintf("%d requests", t.requests), Entries: list,
			Month: time.Unix(key.month, 0).UTC()}
	}
	_, err = p.ledger.Post(ctx, txns)
	return err
}

// monthsOf gives the month of every day that the entries have: there are few.
func monthsOf(entries []*entry) map[time.Time]int64 {
	months := make(map[time.Time]int64, 1)
	for _, e := range entries {
		if _, ok := months[e.day]; !ok {
			months[e.day] = ledger.MonthOf(e.day).Unix()
		}
	}
	return months
}

// Bits of the events' flags column.
const (
	flagEstimated = 1 << iota
	flagRepriced
	flagStreamed
	flagPriority
	flagBatch
)

// group is what many events of a batch have in common.
type group struct {
	org, project, key, model, version, epoch, txn ids.ID
	day                                           int64 // unix seconds
}

// insertEvents is what makes the batch happen once: an event that is there already undoes everything.
func (p *pass) insertEvents(ctx context.Context) error {
	if len(p.finals) == 0 {
		return nil
	}
	a := newEventColumns(len(p.finals))
	groups := make(map[group]int32)
	for _, e := range p.finals {
		g := group{e.ev.Org, e.ev.Project, e.ev.Key, e.ev.Model, e.version, e.ev.Epoch, e.txn, e.day.Unix()}
		n, ok := groups[g]
		if !ok {
			n = addGroup(a, e)
			groups[g] = n
		}
		a.Groups = append(a.Groups, n)
		addEvent(a, e)
	}
	err := p.q.InsertUsageEvents(ctx, *a)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == uniqueViolation && strings.HasPrefix(pg.TableName, "usage_events") {
		return errKnown
	}
	return err
}

const uniqueViolation = "23505"

func newEventColumns(n int) *q.InsertUsageEventsParams {
	num := func() []int64 { return make([]int64, 0, n) }
	text := func() []string { return make([]string, 0, n) }
	return &q.InsertUsageEventsParams{Groups: make([]int32, 0, n), Ids: make([]ids.ID, 0, n), Input: num(), Cached: num(), CacheWrite: num(),
		Output: num(), Reasoning: num(), Image: num(), Audio: num(), Requests: num(), Charged: num(), Overrun: num(), Saved: num(), Endings: text(),
		Statuses: make([]int32, 0, n), Flags: make([]int32, 0, n), Dialects: text(), Attempts: text(), Raws: text(),
		StartedMs: num(), FirstTokenMs: num(), EndedMs: num()}
}

// addGroup gives the group's position, from 1 as PostgreSQL counts.
func addGroup(a *q.InsertUsageEventsParams, e *entry) int32 {
	a.Orgs, a.Days, a.Projects = append(a.Orgs, e.ev.Org), append(a.Days, e.day), append(a.Projects, e.ev.Project)
	a.Keys, a.Models, a.PriceVersions = append(a.Keys, e.ev.Key), append(a.Models, e.ev.Model), append(a.PriceVersions, e.version)
	a.Epochs, a.Txns = append(a.Epochs, e.ev.Epoch), append(a.Txns, e.txn)
	return int32(len(a.Orgs))
}

func addEvent(a *q.InsertUsageEventsParams, e *entry) {
	ev, u := &e.ev, &e.ev.Usage
	a.Ids = append(a.Ids, ev.ID)
	a.Input, a.Cached, a.CacheWrite = append(a.Input, u[usage.Input]), append(a.Cached, u[usage.Cached]), append(a.CacheWrite, u[usage.CacheWrite])
	a.Output, a.Reasoning = append(a.Output, u[usage.Output]), append(a.Reasoning, u[usage.Reasoning])
	a.Image, a.Audio, a.Requests = append(a.Image, u[usage.Image]), append(a.Audio, u[usage.Audio]), append(a.Requests, u[usage.Requests])
	a.Charged, a.Overrun = append(a.Charged, int64(e.charged)), append(a.Overrun, int64(e.overrun))
	a.Saved, a.Endings = append(a.Saved, int64(e.saved)), append(a.Endings, string(ev.Ending))
	flags := flag(ev.Estimated, flagEstimated) | flag(e.repriced, flagRepriced) | flag(ev.Streamed, flagStreamed) |
		flag(ev.Service == usage.Priority, flagPriority) | flag(ev.Service == usage.Batch, flagBatch)
	a.Statuses, a.Flags = append(a.Statuses, int32(ev.Status)), append(a.Flags, flags)
	a.Dialects, a.Raws = append(a.Dialects, ev.Dialect), append(a.Raws, string(ev.Raw))
	a.Attempts = append(a.Attempts, attemptsJSON(ev.Attempts))
	a.StartedMs, a.FirstTokenMs, a.EndedMs = append(a.StartedMs, ev.StartedMS), append(a.FirstTokenMs, ev.FirstTokenMS), append(a.EndedMs, ev.EndedMS)
}

func flag(set bool, bit int32) int32 {
	if set {
		return bit
	}
	return 0
}

func attemptsJSON(list []usage.Attempt) string {
	if len(list) == 0 {
		return "[]"
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // ids and strings always encode
	}
	return string(text)
}

// bucketSize of the rollups: any day in any zone is whole buckets.
const bucketSize = 15 * time.Minute

// cell is the key of a rollup row.
type cell struct {
	org     ids.ID
	bucket  int64 // unix seconds
	project ids.ID
	key     ids.ID
	model   ids.ID
	version ids.ID
	service string // as usage_events.service_tier
}

func compareCells(a, b cell) int {
	return cmp.Or(compareIDs(a.org, b.org), cmp.Compare(a.bucket, b.bucket), compareIDs(a.project, b.project),
		compareIDs(a.key, b.key), compareIDs(a.model, b.model), compareIDs(a.version, b.version), cmp.Compare(a.service, b.service))
}

// sums is what a rollup row gains.
type sums struct {
	requests, errors                int64
	usage                           usage.Vector
	charged, overrun, saved         money.Nano
	ttftMS, ttftCount, decodeMillis int64
}

func (s *sums) add(e *entry) {
	ev := &e.ev
	s.requests++
	if failed(ev) {
		s.errors++
	}
	for c, n := range ev.Usage {
		s.usage[c] += n
	}
	s.charged, s.overrun, s.saved = s.charged+e.charged, s.overrun+e.overrun, s.saved+e.saved
	if ev.FirstTokenMS != 0 {
		s.ttftMS += ev.FirstTokenMS - ev.StartedMS
		s.ttftCount++
		s.decodeMillis += ev.EndedMS - ev.FirstTokenMS
	}
}

func (p *pass) addRollups(ctx context.Context) error {
	if len(p.finals) == 0 {
		return nil
	}
	cells := make(map[cell]*sums)
	for _, e := range p.finals {
		key := cell{e.ev.Org, time.UnixMilli(e.ev.StartedMS).Truncate(bucketSize).Unix(), e.ev.Project, e.ev.Key, e.ev.Model, e.version, string(e.ev.Service)}
		s := cells[key]
		if s == nil {
			s = &sums{}
			cells[key] = s
		}
		s.add(e)
	}
	a := q.AddRollupsParams{}
	for _, k := range slices.SortedFunc(maps.Keys(cells), compareCells) {
		s := cells[k]
		a.Orgs, a.Buckets = append(a.Orgs, k.org), append(a.Buckets, time.Unix(k.bucket, 0).UTC())
		a.Projects, a.Keys, a.Models = append(a.Projects, k.project), append(a.Keys, k.key), append(a.Models, k.model)
		a.Versions, a.Services = append(a.Versions, k.version), append(a.Services, k.service)
		a.Requests, a.Errors = append(a.Requests, s.requests), append(a.Errors, s.errors)
		a.Input, a.Cached = append(a.Input, s.usage[usage.Input]), append(a.Cached, s.usage[usage.Cached])
		a.CacheWrite, a.Output = append(a.CacheWrite, s.usage[usage.CacheWrite]), append(a.Output, s.usage[usage.Output])
		a.Reasoning, a.Image = append(a.Reasoning, s.usage[usage.Reasoning]), append(a.Image, s.usage[usage.Image])
		a.Audio, a.Charged = append(a.Audio, s.usage[usage.Audio]), append(a.Charged, int64(s.charged))
		a.Overrun, a.Saved = append(a.Overrun, int64(s.overrun)), append(a.Saved, int64(s.saved))
		a.TtftMsSum, a.TtftCount = append(a.TtftMsSum, s.ttftMS), append(a.TtftCount, s.ttftCount)
		a.DecodeMsSum, a.Billed = append(a.DecodeMsSum, s.decodeMillis), append(a.Billed, s.usage[usage.Requests])
	}
	return p.q.AddRollups(ctx, a)
}

// streams keeps the newest news of running streams, and forgets those that ended.
func (p *pass) streams(ctx context.Context) error {
	if len(p.progress) > 0 {
		a := q.UpsertProgressParams{}
		for _, e := range p.progress {
			a.Orgs, a.Days, a.Ids = append(a.Orgs, e.ev.Org), append(a.Days, e.day), append(a.Ids, e.ev.ID)
			a.Epochs, a.Progress = append(a.Epochs, e.ev.Epoch), append(a.Progress, e.ev.Progress)
			a.Events = append(a.Events, string(e.line))
		}
		if err := p.q.UpsertProgress(ctx, a); err != nil {
			return err
		}
	}
	return forgetStreams(ctx, p.q, p.finals)
}

// forgetStreams drops what was told of streams while they ran.
func forgetStreams(ctx context.Context, queries *q.Queries, ended []*entry) error {
	if len(ended) == 0 {
		return nil
	}
	a := q.DeleteProgressParams{Orgs: make([]ids.ID, 0, len(ended)), Ids: make([]ids.ID, 0, len(ended))}
	for _, e := range ended {
		a.Orgs, a.Ids = append(a.Orgs, e.ev.Org), append(a.Ids, e.ev.ID)
	}
	return queries.DeleteProgress(ctx, a)
}
