package export

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
)

// Manifest tells what an export wrote, so that whoever receives it can check it.
type Manifest struct {
	Kind     Kind      `json:"kind"`
	Format   Format    `json:"format"`
	Org      string    `json:"org,omitempty"` // empty = all
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Columns  []Column  `json:"columns"`
	Complete bool      `json:"complete"` // everything up to To was written, as far as it was rated when the snapshot was taken
	Total    Count     `json:"total"`
	Parts    []Part    `json:"parts"`
}

// Count is how much was written: Sums are of the columns that add up, amounts as decimals of USD.
type Count struct {
	Rows int64             `json:"rows"`
	Sums map[string]string `json:"sums"`
}

// Part is one file.
type Part struct {
	File     string    `json:"file"`
	Bytes    int64     `json:"bytes"`
	SHA256   string    `json:"sha256"` // hexadecimal
	Snapshot time.Time `json:"snapshot_at"`
	Next     Cursor    `json:"next"` // the last row: give it as after to go on behind it
	Count
}

// tally adds up the columns that add up.
type tally struct {
	columns []Column
	rows    int64
	sums    []int64
}

func newTally(columns []Column) *tally {
	return &tally{columns: columns, sums: make([]int64, len(columns))}
}

func (t *tally) add(cells []cell) error {
	t.rows++
	for i, c := range t.columns {
		if !c.sum {
			continue
		}
		n := cells[i].n
		if n > 0 && t.sums[i] > math.MaxInt64-n || n < 0 && t.sums[i] < math.MinInt64-n {
			return fmt.Errorf("export: the sum of %s is beyond what can be told", c.Name)
		}
		t.sums[i] += n
	}
	return nil
}

func (t *tally) count() Count {
	out := Count{Rows: t.rows, Sums: map[string]string{}}
	for i, c := range t.columns {
		switch {
		case !c.sum:
		case c.Type == USD:
			out.Sums[c.Name] = money.Nano(t.sums[i]).String()
		default:
			out.Sums[c.Name] = strconv.FormatInt(t.sums[i], 10)
		}
	}
	return out
}

// resume makes t go on from what parts of a manifest add up to.
func (t *tally) resume(parts []Part) error {
	for _, p := range parts {
		t.rows += p.Rows
		for i, c := range t.columns {
			if !c.sum {
				continue
			}
			n, err := parse(c, p.Sums[c.Name])
			if err != nil {
				return fmt.Errorf("export: the manifest's sum of %s: %w", c.Name, err)
			}
			t.sums[i] += n
		}
	}
	return nil
}

func parse(c Column, s string) (int64, error) {
	if c.Type == USD {
		n, err := money.ParseUSD(s)
		return int64(n), err
	}
	return strconv.ParseInt(s, 10, 64)
}

func newManifest(in Query, f Format) Manifest {
	m := Manifest{Kind: in.Kind, Format: f, From: in.From.UTC(), To: in.To.UTC(), Columns: columnsOf(in.Kind)}
	if in.Org != ids.Nil {
		m.Org = ids.Format(ids.Org, in.Org)
	}
	return m
}
