package export

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

const (
	// groupRows is how many rows a row group has: what is held in memory before it is written.
	groupRows = 20_000
	// batchRows go to the writer together.
	batchRows = 500
)

type parquetEncoder struct {
	w       *parquet.GenericWriter[any]
	columns []Column
	rows    []parquet.Row
}

func newParquet(w io.Writer, kind Kind, columns []Column) (*parquetEncoder, error) {
	schema, err := schemaOf(kind, columns)
	if err != nil {
		return nil, err
	}
	return &parquetEncoder{columns: columns, w: parquet.NewGenericWriter[any](w, schema, parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}),
		parquet.CreatedBy("millrace", "", ""), parquet.MaxRowsPerRowGroup(groupRows), parquet.PageBufferSize(flushAt))}, nil
}

// schemaOf describes the columns as a struct: a parquet.Group would forget their order.
func schemaOf(kind Kind, columns []Column) (*parquet.Schema, error) {
	fields := make([]reflect.StructField, len(columns))
	for i, c := range columns {
		tag := c.Name
		if c.null {
			tag += ",optional"
		}
		of := reflect.TypeFor[int64]()
		switch c.Type {
		case Text:
			of = reflect.TypeFor[string]()
			if c.few {
				tag += ",dict"
			}
		case USD:
			tag += ",decimal(9:18)"
		case Time:
			tag += ",timestamp(millisecond)"
		case Truth:
			of = reflect.TypeFor[bool]()
		}
		fields[i] = reflect.StructField{Name: fmt.Sprintf("C%d", i), Type: of, Tag: reflect.StructTag(`parquet:"` + tag + `"`)}
	}
	schema := parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface())
	for i, f := range schema.Fields() {
		if f.Name() != columns[i].Name {
			return nil, fmt.Errorf("export: the parquet schema has %s where %s is meant", f.Name(), columns[i].Name)
		}
	}
	return parquet.NewSchema(strings.ToLower(string(kind)), schema), nil
}

func (e *parquetEncoder) row(cells []cell) error {
	row := make(parquet.Row, len(cells))
	for i, c := range e.columns {
		row[i] = valueOf(c, cells[i]).Level(0, levelOf(c, cells[i]), i)
	}
	if e.rows = append(e.rows, row); len(e.rows) < batchRows {
		return nil
	}
	return e.flush()
}

func valueOf(c Column, v cell) parquet.Value {
	switch {
	case v.null && c.null:
		return parquet.NullValue()
	case c.Type == Text:
		return parquet.ByteArrayValue([]byte(v.s))
	case c.Type == Truth:
		return parquet.BooleanValue(v.n != 0)
	}
	return parquet.Int64Value(v.n)
}

// levelOf is 1 for a value that could be missing and is there.
func levelOf(c Column, v cell) int {
	if c.null && !v.null {
		return 1
	}
	return 0
}

func (e *parquetEncoder) flush() error {
	_, err := e.w.WriteRows(e.rows)
	e.rows = e.rows[:0]
	return err
}

func (e *parquetEncoder) close() error {
	if err := e.flush(); err != nil {
		return err
	}
	return e.w.Close()
}
