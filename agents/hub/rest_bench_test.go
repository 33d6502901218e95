package hub

import (
	"io"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"millrace/agents/wire"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/serving/catalogue"
	"millrace/tenants"
)

const benchHosts = 10_000

// What a hub does for a large fleet at rest, without the wire: the look at all hosts' generations (every second), the mark
// that they are alive (every five), and one fact. CPU counts this process, the bus included; the database's is not in it.
func BenchmarkAFleetAtRest(b *testing.B) {
	d, ear := dbtest.New(b), dbtest.Bus(b)
	ca, _, err := pki.NewCA(clock.System)
	if err != nil {
		b.Fatal(err)
	}
	m, err := catalogue.New(catalogue.Options{DB: d, Bus: ear, Clock: clock.System}).CreateModel(b.Context(), catalogue.ModelInput{Name: "a/b", Context: 4096}, tenants.System())
	if err != nil {
		b.Fatal(err)
	}
	h := New(Config{DB: d, Bus: ear, CA: ca, Log: quiet})
	stop, err := ear.Subscribe("fleet.load", h.fleet.heard)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(stop)
	hosts := make([]ids.ID, benchHosts)
	for i := range hosts {
		hosts[i] = ids.New()
	}
	unit := ids.New()
	err = d.InTx(b.Context(), db.System().Timeout(time.Minute), func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.Context(), "INSERT INTO hosts (id, name) SELECT id, 'h' || id FROM unnest($1::uuid[]) id", hosts); err != nil {
			return err
		}
		_, err := tx.Exec(b.Context(), "INSERT INTO units (id, name, model_id, engine, host_id, upstream_model) VALUES ($1, 'u', $2, 'sim', $3, 'm')", unit, m.ID, hosts[0])
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, id := range hosts {
		h.links[id] = &hostLink{id: id, joined: time.Now(), moved: make(chan struct{})}
	}
	for name, see := range map[string]bool{"look": false, "mark": true} {
		b.Run(name, func(b *testing.B) {
			defer cpuOfOne(b)()
			for b.Loop() {
				if err := h.lookOnce(b.Context(), see); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("fact", func(b *testing.B) {
		defer cpuOfOne(b)()
		line := []byte(`{"load":{"unit":"` + unit.String() + `","engine":"` + ids.New().String() + `","state":"ready","running":12,"waiting":3,"queued_tokens":4096,"kv_usage":0.5,"cache_queries":123456,"cache_hits":65432,"at_ms":1790000000000}}` + "\n")
		r := httptest.NewRequestWithContext(b.Context(), "POST", wire.PathFacts, &again{line: line, left: b.N})
		if err := h.facts(r, h.links[hosts[0]]); err != nil {
			b.Fatal(err)
		}
	})
}

// again reads as so many times the same line.
type again struct {
	line []byte
	at   int
	left int
}

func (a *again) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, a.line[a.at:])
	if a.at += n; a.at == len(a.line) {
		a.at, a.left = 0, a.left-1
	}
	return n, nil
}

// cpuOfOne reports the process's CPU time of one operation.
func cpuOfOne(b *testing.B) func() {
	spent := func() int64 {
		var own unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
			b.Fatal(err)
		}
		return own.Utime.Nano() + own.Stime.Nano()
	}
	before := spent()
	return func() { b.ReportMetric(float64(spent()-before)/1e3/float64(b.N), "cpu-us/op") }
}
