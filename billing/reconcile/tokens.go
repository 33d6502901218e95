package reconcile

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

// class says what a class of attempts means, in the order of the report.
type class struct {
	name string // of the query TokensByClass
	says string
	// Where a count is exact, both sides must be equal. Else the difference is what the class is about.
	prompt, generated bool

	explained bool
	note      string
}

var classes = []class{
	{name: "complete", says: "billed", prompt: true, generated: true, explained: true},
	{name: "prefill", says: "prompt computed for another engine", prompt: true, explained: true, note: "its one token is the other engine's first"},
	{name: "decode", says: "decoded from another engine's cache", generated: true, explained: true, note: "the prompt is billed by the engine that computed it"},
	{name: "replay", says: "begun by an engine that failed, continued by another", explained: true},
	{name: "encode", says: "image encoded for another engine", explained: true},
	{name: "cut", says: "generated but not delivered", explained: true},
	{name: "gateway_died", says: "lost with a gateway, billed by the last progress", explained: true},
	{name: "gateway_lost", says: "lost with a gateway", explained: true},
	{name: "abandoned", says: "abandoned attempt", explained: true},
	{name: "probe", says: "probe", explained: true},
	{name: "golden", says: "golden", explained: true},
	{name: "open", says: "open", explained: true},
	{name: "quarantined", says: "in quarantine", explained: true},
	{name: "log_gap", says: "in a part of the log that is gone", explained: true},
	{name: "attached", says: "attached engine", explained: true, note: "no independent source"},
	{name: "host_away", says: "journal of a host that is away", explained: true, note: "no independent source yet"},
	{name: "no_journal", says: "no journal"},
	{name: "no_event", says: "no event"},
}

// over is the class that nothing explains.
const over = "billed above the journal"

// tokens compares what engines worked, by the agents' journals, with what the events bill.
func (c *Config) tokens(ctx context.Context, tx pgx.Tx, r *Report) error {
	queries := q.New(tx)
	aside, err := quarantined(ctx, queries, c)
	if err != nil {
		return err
	}
	rows, err := queries.TokensByClass(ctx, q.TokensByClassParams{Since: c.Since, Watermark: r.Watermark, GraceMs: c.Grace.Milliseconds(), Aside: aside})
	if err != nil {
		return err
	}
	bare, err := queries.TokensWithoutAttempt(ctx, c.Since)
	if err != nil {
		return err
	}
	for _, m := range []struct {
		name  string
		of    func(q.TokensByClassRow) counts
		exact func(class) bool
		bare  int64
	}{
		{"prompt tokens", func(t q.TokensByClassRow) counts { return counts{t.JournalPrompt, t.BilledPrompt, t.OverPrompt} },
			func(c class) bool { return c.prompt }, bare.Prompt},
		{"generated tokens", func(t q.TokensByClassRow) counts {
			return counts{t.JournalGenerated, t.BilledGenerated, t.OverGenerated}
		}, func(c class) bool { return c.generated }, bare.Generated},
	} {
		parts := split(m.name, rows, m.of, m.exact)
		if m.bare > 0 {
			parts = append(parts, Line{Side: Engine, Name: m.name, Class: "billed without an attempt", Unit: Tokens, Right: m.bare, Difference: -m.bare, Count: bare.Events})
		}
		whole := Line{Side: Engine, Name: m.name, Unit: Tokens, Explained: true}
		for _, p := range parts {
			whole.Left, whole.Right, whole.Difference = whole.Left+p.Left, whole.Right+p.Right, whole.Difference+p.Difference
			whole.Count += p.Count
			whole.Explained = whole.Explained && p.Explained
		}
		r.Lines = append(append(r.Lines, whole), parts...)
	}
	return nil
}

// counts are one class's tokens by the journals and by the events, and how much single attempts were billed above.
type counts struct{ journal, billed, over int64 }

// split makes a line for each class that has attempts.
func split(name string, rows []q.TokensByClassRow, of func(q.TokensByClassRow) counts, exact func(class) bool) (lines []Line) {
	byName := make(map[string]q.TokensByClassRow, len(rows))
	for _, row := range rows {
		byName[row.Class] = row
	}
	above := int64(0)
	for _, c := range classes {
		row, ok := byName[c.name]
		if !ok {
			continue
		}
		n := of(row)
		above += n.over
		l := Line{Side: Engine, Name: name, Class: c.says, Unit: Tokens, Left: n.journal, Right: n.billed - n.over, Count: row.Attempts, Note: c.note}
		l.Difference = l.Left - l.Right
		l.Explained = l.Difference == 0 || c.explained && !exact(c)
		lines = append(lines, l)
	}
	if above > 0 {
		lines = append(lines, Line{Side: Engine, Name: name, Class: over, Unit: Tokens, Right: above, Difference: -above})
	}
	return lines
}

// quarantined gives the attempts of events that were put aside. What cannot be read names none.
func quarantined(ctx context.Context, queries *q.Queries, c *Config) (attempts []ids.ID, err error) {
	payloads, err := queries.QuarantinedPayloads(ctx, c.Since)
	if err != nil {
		return nil, err
	}
	attempts = []ids.ID{}
	for _, p := range payloads {
		var e usage.Event
		if json.Unmarshal(p, &e) != nil {
			continue
		}
		for _, a := range e.Attempts {
			attempts = append(attempts, a.ID)
		}
	}
	return attempts, nil
}
