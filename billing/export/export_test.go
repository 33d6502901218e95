package export_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"millrace/billing/export"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

func (w *world) write(in export.Query, f export.Format) ([]byte, export.Manifest) {
	w.t.Helper()
	var out bytes.Buffer
	m, err := w.Write(w.t.Context(), w.root, in, f, &out)
	if err != nil {
		w.t.Fatal(err)
	}
	sum := sha256.Sum256(out.Bytes())
	if m.Parts[0].SHA256 != hex.EncodeToString(sum[:]) || m.Parts[0].Bytes != int64(out.Len()) {
		w.t.Fatalf("the manifest tells %d bytes of %s", m.Parts[0].Bytes, m.Parts[0].SHA256)
	}
	return out.Bytes(), m
}

// table reads rows of CSV by column.
func table(t *testing.T, b []byte) []map[string]string {
	t.Helper()
	lines, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]map[string]string, 0, len(lines))
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		out = append(out, row)
	}
	return out
}

func usd(t *testing.T, s string) money.Nano {
	t.Helper()
	n, err := money.ParseUSD(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var (
	monthStart = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	wholeMonth = export.Query{Kind: export.Usage, From: monthStart, To: monthStart.AddDate(0, 0, 18)}
)

// Rows cross pages, days and organizations; whatever is written adds up to what is there, in every format and data set.
func TestEveryFormatSaysTheSame(t *testing.T) {
	w := newWorld(t)
	a, b := w.customer(`=HYPERLINK("http://evil")`), w.customer("Blau & Söhne, \"GmbH\"")
	w.use(a, a.key, monthStart.Add(-2*time.Hour), 7*time.Minute, 5000)
	w.use(b, b.played, monthStart.Add(5*time.Hour), 3*time.Hour, 30)
	outside := 18 // of a's, before the month: every 7 minutes of two hours
	var want money.Nano
	for i := outside; i < 5000; i++ {
		if monthStart.Add(-2 * time.Hour).Add(time.Duration(i) * 7 * time.Minute).Before(wholeMonth.To) {
			want += money.Nano(i + 1)
		}
	}
	rows := int64(0)
	for i := outside; i < 5000 && monthStart.Add(-2*time.Hour).Add(time.Duration(i)*7*time.Minute).Before(wholeMonth.To); i++ {
		rows++
	}
	want, rows = want+30*31/2, rows+30

	plain, m := w.write(wholeMonth, export.CSV)
	if m.Total.Rows != rows || m.Total.Sums["charged_usd"] != want.String() {
		t.Fatalf("manifest: %d rows of %s USD, want %d of %s", m.Total.Rows, m.Total.Sums["charged_usd"], rows, want)
	}
	var sum money.Nano
	seen := map[string]bool{}
	for _, row := range table(t, plain) {
		sum += usd(t, row["charged_usd"])
		seen[row["request_id"]] = true
		if strings.HasPrefix(row["org_name"], "=") || row["key_name"] == "-key" {
			t.Fatalf("a cell that a spreadsheet would run: %v", row)
		}
		if row["org_id"] == ids.Format(ids.Org, b.id) && (row["key_id"] != "" || row["key_name"] != "Playground") {
			t.Fatalf("a key of the playground is shown: %v", row)
		}
	}
	if sum != want || int64(len(seen)) != rows {
		t.Fatalf("CSV: %d rows of %s", len(seen), sum)
	}
	checkJSONL(t, w, want, rows)
	checkParquet(t, w, m, want, rows)
	for _, kind := range []export.Kind{export.Revenue, export.Costs} {
		in := wholeMonth
		in.Kind = kind
		b, m := w.write(in, export.CSV)
		column := map[export.Kind]string{export.Revenue: "charged_usd", export.Costs: "BilledCost"}[kind]
		if m.Total.Sums[column] != want.String() || m.Total.Rows != int64(len(table(t, b))) {
			t.Fatalf("%s: %s USD, want %s", kind, m.Total.Sums[column], want)
		}
	}
	if again, _ := w.write(wholeMonth, export.CSV); !bytes.Equal(again, plain) {
		t.Fatal("the same range gives other bytes")
	}
}

func checkJSONL(t *testing.T, w *world, want money.Nano, rows int64) {
	t.Helper()
	lines, _ := w.write(wholeMonth, export.JSONL)
	var sum money.Nano
	var n int64
	for dec := json.NewDecoder(bytes.NewReader(lines)); dec.More(); n++ {
		var row struct {
			Charged string    `json:"charged_usd"`
			Input   int64     `json:"input_tokens"`
			Txn     *string   `json:"ledger_txn"`
			Started time.Time `json:"started_at"`
		}
		if err := dec.Decode(&row); err != nil {
			t.Fatal(err)
		}
		if sum += usd(t, row.Charged); row.Input != 10 || row.Txn != nil || row.Started.IsZero() {
			t.Fatalf("a row reads %+v", row)
		}
	}
	if sum != want || n != rows {
		t.Fatalf("JSON Lines: %d rows of %s", n, sum)
	}
}

func checkParquet(t *testing.T, w *world, m export.Manifest, want money.Nano, rows int64) {
	t.Helper()
	b, _ := w.write(wholeMonth, export.Parquet)
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for i, field := range f.Schema().Fields() {
		if field.Name() != m.Columns[i].Name {
			t.Fatalf("column %d is %s, want %s", i, field.Name(), m.Columns[i].Name)
		}
	}
	type row struct {
		Charged int64   `parquet:"charged_usd,decimal(9:18)"`
		Name    string  `parquet:"org_name"`
		Key     *string `parquet:"key_id,optional"`
		Started int64   `parquet:"started_at,timestamp(millisecond)"`
	}
	r := parquet.NewGenericReader[row](bytes.NewReader(b))
	all := make([]row, rows+1)
	n, _ := r.Read(all)
	var sum money.Nano
	for _, x := range all[:n] {
		sum += money.Nano(x.Charged)
		if x.Started < monthStart.UnixMilli() || x.Name == "" {
			t.Fatalf("a row reads %+v", x)
		}
	}
	if int64(n) != rows || f.NumRows() != rows || sum != want {
		t.Fatalf("Parquet: %d rows of %s", n, sum)
	}
}

func TestMembersExportTheirOwn(t *testing.T) {
	w := newWorld(t)
	a, b := w.customer("a"), w.customer("b")
	w.use(a, a.key, now.Add(-time.Hour), time.Minute, 10)
	w.use(b, b.key, now.Add(-time.Hour), time.Minute, 20)
	in := export.Query{Kind: export.Usage, Org: a.id, From: now.Add(-24 * time.Hour), To: now}
	var out bytes.Buffer
	m, err := w.Write(t.Context(), a.member, in, export.CSV, &out)
	if err != nil || m.Total.Rows != 10 {
		t.Fatalf("%d rows, %v", m.Total.Rows, err)
	}
	for name, x := range map[string]struct {
		in   export.Query
		kind fault.Kind
	}{
		"another's":   {export.Query{Kind: export.Usage, Org: b.id, From: in.From, To: in.To}, fault.NotFound},
		"everybody's": {export.Query{Kind: export.Usage, From: in.From, To: in.To}, fault.Forbidden},
		"revenue":     {export.Query{Kind: export.Revenue, Org: a.id, From: in.From, To: in.To}, fault.Forbidden},
		"nothing":     {export.Query{Kind: "secrets", Org: a.id, From: in.From, To: in.To}, fault.Invalid},
		"no time":     {export.Query{Kind: export.Usage, Org: a.id, From: in.To, To: in.To}, fault.Invalid},
		"too long":    {export.Query{Kind: export.Usage, Org: a.id, From: in.To.AddDate(-2, 0, 0), To: in.To}, fault.Invalid},
	} {
		if _, err := w.Write(t.Context(), a.member, x.in, export.CSV, &out); !fault.Is(err, x.kind) {
			t.Errorf("%s: %v, want %s", name, err, x.kind)
		}
	}
}

// meddler tries something while an export writes to it.
type meddler struct {
	once sync.Once
	try  func()
}

func (m *meddler) Write(b []byte) (int, error) { m.once.Do(m.try); return len(b), nil }

// A customer who reads slowly holds up nobody but himself.
func TestACustomerHasOneExportAtOnce(t *testing.T) {
	w := newWorld(t)
	a, b := w.customer("a"), w.customer("b")
	w.use(a, a.key, now.Add(-2*time.Hour), time.Second, 3000) // more than is kept before it is written
	in := export.Query{Kind: export.Usage, Org: a.id, From: now.Add(-24 * time.Hour), To: now}
	others := in
	others.Org = b.id
	out := &meddler{try: func() {
		if _, err := w.Write(t.Context(), a.member, in, export.CSV, io.Discard); !fault.Is(err, fault.Limited) {
			t.Errorf("a second one of the same customer: %v", err)
		}
		if _, err := w.Write(t.Context(), b.member, others, export.CSV, io.Discard); err != nil {
			t.Errorf("another customer's: %v", err)
		}
	}}
	for range 2 { // the place is free again afterwards
		if _, err := w.Write(t.Context(), a.member, in, export.CSV, out); err != nil {
			t.Error(err)
		}
	}
}

// An export that is broken off again and again gives what one that is not gives.
func TestAFolderIsGoneOnWith(t *testing.T) {
	w := newWorld(t)
	a := w.customer("a")
	w.use(a, a.key, monthStart, time.Minute, 9000)
	for _, f := range export.Formats {
		dir := t.TempDir()
		broken := errors.New("power cut")
		var m export.Manifest
		for run := 0; !m.Complete; run++ {
			if run > 20 {
				t.Fatal("it never completes")
			}
			ctx, cut := context.WithCancelCause(t.Context())
			pages := 0
			var err error
			m, err = w.Folder(ctx, w.root, wholeMonth, f, dir, 2000, func(export.Progress) {
				if pages++; pages == 2 {
					cut(broken)
				}
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		_, whole := w.write(wholeMonth, export.CSV)
		if m.Total.Rows != 9000 || m.Total.Sums["charged_usd"] != whole.Total.Sums["charged_usd"] {
			t.Fatalf("%s: %d rows of %s USD, want %s", f, m.Total.Rows, m.Total.Sums["charged_usd"], whole.Total.Sums["charged_usd"])
		}
		for _, p := range m.Parts {
			b, err := os.ReadFile(filepath.Join(dir, p.File))
			sum := sha256.Sum256(b)
			if err != nil || hex.EncodeToString(sum[:]) != p.SHA256 {
				t.Fatalf("%s: %v", p.File, err)
			}
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != len(m.Parts)+1 {
			t.Fatalf("the folder has %d files, the manifest %d parts (%v)", len(files), len(m.Parts), err)
		}
		// Once more changes nothing; another question is refused.
		again, err := w.Folder(t.Context(), w.root, wholeMonth, f, dir, 2000, func(export.Progress) { t.Error("it read again") })
		if err != nil || again.Total.Rows != 9000 {
			t.Fatalf("%d rows, %v", again.Total.Rows, err)
		}
		other := wholeMonth
		other.Kind = export.Revenue
		if _, err := w.Folder(t.Context(), w.root, other, f, dir, 0, nil); !fault.Is(err, fault.Conflict) {
			t.Fatalf("another question: %v", err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add(export.Cursor{Day: monthStart, Org: ids.New(), ID: ids.New()}.String())
	f.Add("20261101.00.00")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := export.ParseCursor(s)
		if err != nil {
			return
		}
		if again, err := export.ParseCursor(c.String()); err != nil || again != c {
			t.Fatalf("%q reads %v, written and read again %v (%v)", s, c, again, err)
		}
	})
}
