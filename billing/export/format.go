package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"

	"millrace/internal/fault"
	"millrace/internal/sheet"
)

// Format is how rows are written.
type Format string

// The formats.
const (
	CSV     Format = "csv"
	JSONL   Format = "jsonl"
	Parquet Format = "parquet"
)

// Formats are all of them.
var Formats = []Format{CSV, JSONL, Parquet}

// ParseFormat reads a format's name; "" is CSV.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case "":
		return CSV, nil
	case CSV, JSONL, Parquet:
		return f, nil
	}
	return "", fault.New(fault.Invalid, "A format is csv, jsonl or parquet.").WithParam("format")
}

// MediaType is the format's content type.
func (f Format) MediaType() string {
	switch f {
	case JSONL:
		return "application/jsonl"
	case Parquet:
		return "application/vnd.apache.parquet"
	}
	return "text/csv; charset=utf-8"
}

// encoder writes rows. Nothing is complete before close.
type encoder interface {
	row(cells []cell) error
	close() error
}

func newEncoder(f Format, w io.Writer, kind Kind, columns []Column) (encoder, error) {
	switch f {
	case JSONL:
		return newJSONL(w, columns), nil
	case Parquet:
		return newParquet(w, kind, columns)
	}
	return newCSV(w, columns)
}

// columnsOf are a data set's; nil = there is no such data set.
func columnsOf(k Kind) []Column {
	switch k {
	case Usage:
		return usageColumns
	case Costs:
		return costColumns
	case Revenue:
		return revenueColumns
	case Months:
		return monthColumns
	}
	return nil
}

type csvEncoder struct {
	out     *csv.Writer
	columns []Column
	line    []string
	scratch []byte
}

// newCSV writes the header.
func newCSV(w io.Writer, columns []Column) (*csvEncoder, error) {
	e := &csvEncoder{out: csv.NewWriter(w), columns: columns, line: make([]string, len(columns))}
	for i, c := range columns {
		e.line[i] = c.Name
	}
	return e, e.out.Write(e.line)
}

func (e *csvEncoder) row(cells []cell) error {
	for i, c := range e.columns {
		switch {
		case cells[i].null:
			e.line[i] = ""
		case c.Type == Text:
			e.line[i] = sheet.Text(cells[i].s)
		default:
			e.scratch = c.plain(e.scratch[:0], cells[i])
			e.line[i] = string(e.scratch)
		}
	}
	return e.out.Write(e.line)
}

func (e *csvEncoder) close() error {
	e.out.Flush()
	return e.out.Error()
}

// flushAt is when JSON lines go out, in bytes.
const flushAt = 64 << 10

type jsonlEncoder struct {
	w       io.Writer
	columns []Column
	keys    [][]byte // `{"name":` or `,"name":`
	b       bytes.Buffer
	scratch []byte
}

func newJSONL(w io.Writer, columns []Column) *jsonlEncoder {
	e := &jsonlEncoder{w: w, columns: columns}
	before := "{"
	for _, c := range columns {
		e.keys = append(e.keys, []byte(before+`"`+c.Name+`":`))
		before = ","
	}
	return e
}

func (e *jsonlEncoder) row(cells []cell) error {
	for i, c := range e.columns {
		e.b.Write(e.keys[i])
		switch {
		case cells[i].null:
			e.b.WriteString("null")
		case c.Type == Text:
			if err := e.text(cells[i].s); err != nil {
				return err
			}
		case c.Type == USD || c.Type == Time:
			e.scratch = append(c.plain(append(e.scratch[:0], '"'), cells[i]), '"')
			e.b.Write(e.scratch)
		default:
			e.scratch = c.plain(e.scratch[:0], cells[i])
			e.b.Write(e.scratch)
		}
	}
	e.b.WriteString("}\n")
	if e.b.Len() < flushAt {
		return nil
	}
	return e.close()
}

// text writes a string; most need no escaping.
func (e *jsonlEncoder) text(s string) error {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			b, err := json.Marshal(s)
			e.b.Write(b)
			return err
		}
	}
	e.b.WriteByte('"')
	e.b.WriteString(s)
	e.b.WriteByte('"')
	return nil
}

func (e *jsonlEncoder) close() error {
	_, err := e.b.WriteTo(e.w)
	return err
}
