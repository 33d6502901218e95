package export

import (
	"strconv"
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
)

// Type is what a column holds.
type Type string

// The types. In CSV and JSON Lines usd is a decimal (JSON: a string), in Parquet DECIMAL(18, 9).
const (
	Text  Type = "text"
	Int   Type = "int"
	USD   Type = "usd"
	Time  Type = "time" // UTC, milliseconds
	Truth Type = "bool"
)

// Column is one column of a data set.
type Column struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	sum  bool   // added up in the manifest
	few  bool   // text with few different values: Parquet keeps a dictionary
	null bool   // may be empty
}

// cell is one value: text in s, everything else in n (USD in nano, Time in Unix milliseconds).
type cell struct {
	s    string
	n    int64
	null bool
}

func text(s string) cell       { return cell{s: s} }
func number(n int64) cell      { return cell{n: n} }
func amount(n money.Nano) cell { return cell{n: int64(n)} }
func moment(t time.Time) cell  { return cell{n: t.UnixMilli()} }

func maybeMoment(t *time.Time) cell {
	if t == nil {
		return cell{null: true}
	}
	return moment(*t)
}

func truth(b bool) cell {
	if b {
		return cell{n: 1}
	}
	return cell{}
}

// id writes a prefixed id; the absent one is empty.
func id(prefix string, of ids.ID) cell {
	if of == ids.Nil {
		return cell{null: true}
	}
	return text(ids.Format(prefix, of))
}

func maybeID(prefix string, of *ids.ID) cell {
	if of == nil {
		return cell{null: true}
	}
	return id(prefix, *of)
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// plain writes a cell that is no text, without quotes.
func (c Column) plain(b []byte, v cell) []byte {
	switch c.Type {
	case USD:
		return append(b, money.Nano(v.n).String()...)
	case Time:
		return time.UnixMilli(v.n).UTC().AppendFormat(b, timeLayout)
	case Truth:
		return strconv.AppendBool(b, v.n != 0)
	}
	return strconv.AppendInt(b, v.n, 10)
}
