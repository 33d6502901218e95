package month

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// keptReport is a closed month as it is stored. It names its columns, so that a report of before a column came can be read.
type keptReport struct {
	Month    string    `json:"month"`
	Currency string    `json:"currency"`
	Columns  []string  `json:"columns"`
	Rows     []keptRow `json:"rows"`
}

type keptRow struct {
	Org  string  `json:"org"`
	Name string  `json:"name"`
	Nano []int64 `json:"nano"` // by column
}

// seal writes a report and its checksum.
func seal(r *Report) (body []byte, sum string, err error) {
	k := keptReport{Month: r.Name(), Currency: Currency, Rows: []keptRow{}}
	for _, c := range Columns {
		k.Columns = append(k.Columns, c.Key)
	}
	for i := range r.Rows {
		row := keptRow{Org: ids.Format(ids.Org, r.Rows[i].Org), Name: r.Rows[i].Name}
		for _, n := range r.Rows[i].Figures {
			row.Nano = append(row.Nano, int64(n))
		}
		k.Rows = append(k.Rows, row)
	}
	return k.sealed()
}

func (k *keptReport) sealed() (body []byte, sum string, err error) {
	if body, err = json.Marshal(k); err != nil {
		return nil, "", fmt.Errorf("month: write a report: %w", err)
	}
	hash := sha256.Sum256(body)
	return body, hex.EncodeToString(hash[:]), nil
}

// kept reads a closed month; pgx.ErrNoRows when it is not closed. One that is not what was written is refused: figures that
// somebody changed are worse than none.
func kept(ctx context.Context, r *q.Queries, start, now time.Time) (Report, error) {
	out := Report{Month: at(start, now)}
	row, err := r.ClosedMonth(ctx, start)
	if err != nil {
		return out, err
	}
	var k keptReport
	if err := json.Unmarshal(row.Report, &k); err != nil {
		return out, fmt.Errorf("month: read the report of %s: %w", out.Name(), err)
	}
	if _, sum, err := k.sealed(); err != nil || sum != row.Checksum || k.Month != out.Name() {
		return out, fault.New(fault.Conflict, "The report of %s is not what was kept when it was closed.", title(start)).WithCode("report_changed")
	}
	out.close(row.ClosedAt, row.ClosedBy)
	out.Checksum = row.Checksum
	for _, x := range k.Rows {
		one, err := x.read(k.Columns)
		if err != nil {
			return out, err
		}
		out.Rows = append(out.Rows, one)
		out.Total.Add(&one.Figures)
	}
	return out, nil
}

func (x keptRow) read(columns []string) (Row, error) {
	org, err := ids.Parse(ids.Org, x.Org)
	if err != nil || len(x.Nano) != len(columns) {
		return Row{}, fmt.Errorf("month: a kept row of %s has %d figures in %d columns (%w)", x.Org, len(x.Nano), len(columns), err)
	}
	row := Row{Org: org, Name: x.Name}
	for i, key := range columns {
		for c := range Columns {
			if Columns[c].Key == key {
				row.Figures[c] = money.Nano(x.Nano[i])
			}
		}
	}
	return row, nil
}
