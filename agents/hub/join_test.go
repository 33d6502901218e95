package hub

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/tenants"
)

// door is a hub whose clock stands still, called as its listener would call it.
type door struct {
	t   *testing.T
	hub *Hub
}

func (d door) post(path string, body any, leaf *x509.Certificate) *httptest.ResponseRecorder {
	d.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		d.t.Fatal(err)
	}
	method := http.MethodPost
	if path == wire.PathLink {
		method = http.MethodGet
	}
	r := httptest.NewRequestWithContext(d.t.Context(), method, path, bytes.NewReader(text))
	if leaf != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	}
	w := httptest.NewRecorder()
	d.hub.Handler().ServeHTTP(w, r)
	return w
}

func (d door) request() []byte {
	d.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		d.t.Fatal(err)
	}
	csr, err := pki.Request(key)
	if err != nil {
		d.t.Fatal(err)
	}
	return csr
}

func (d door) join(name string) (ids.ID, *x509.Certificate) {
	d.t.Helper()
	token, err := d.hub.JoinToken(d.t.Context(), name, tenants.System())
	if err != nil {
		d.t.Fatal(err)
	}
	w := d.post(wire.PathJoin, wire.JoinRequest{Token: token, CSR: d.request()}, nil)
	var out wire.JoinResponse
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != http.StatusOK {
		d.t.Fatal(w.Code, w.Body, err)
	}
	leaf, err := pki.ParseCert(out.Cert)
	if err != nil {
		d.t.Fatal(err)
	}
	return out.Host, leaf
}

// A host that joins again, because its key was lost or stolen, is the only one of its name.
func TestJoiningAgainEndsTheOldIdentity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	now := clock.NewManual(time.Now())
	ca, _, err := pki.NewCA(now)
	if err != nil {
		t.Fatal(err)
	}
	d := door{t, New(Config{DB: b.db, Bus: b.bus, CA: ca, Clock: now, Log: quiet})}
	h1, first := d.join("h1")
	renew := func(leaf *x509.Certificate) int {
		return d.post(wire.PathRenew, wire.RenewRequest{CSR: d.request()}, leaf).Code
	}
	if code := renew(first); code != http.StatusOK {
		t.Fatalf("the first identity renews: %d", code)
	}
	now.Advance(2 * time.Second)
	again, second := d.join("h1")
	if again != h1 {
		t.Errorf("it became another host: %v, %v", h1, again)
	}
	if code := renew(first); code != http.StatusForbidden {
		t.Errorf("the ended identity renews: %d", code)
	}
	if code := d.post(wire.PathLink, nil, first).Code; code != http.StatusForbidden {
		t.Errorf("the ended identity links: %d", code)
	}
	if code := renew(second); code != http.StatusOK {
		t.Errorf("the second identity renews: %d", code)
	}
	if code := d.post(wire.PathLink, nil, second).Code; code == http.StatusForbidden || code == http.StatusUnauthorized {
		t.Errorf("the second identity is refused a link: %d", code)
	}
}

func TestJoiningAgainBreaksTheOldLink(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	b.agent(b.config(b.token("h1")))
	until(t, "the link", func() bool { return b.host("h1").Linked })
	h := b.host("h1")
	b.exec("UPDATE hosts SET joined_at = now() + interval '1 hour' WHERE id = $1", h.ID) // by whichever hub
	until(t, "the link to stay away", func() bool { return b.hub.Live().Links[h.ID].IsZero() })
}

func TestAJournalTellsOfItsHostsUnitsOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	u1, u2 := b.place("h1", "u1"), b.place("h2", "u2")
	d := door{t, New(Config{DB: b.db, Bus: b.bus, CA: b.ca, Log: quiet})}
	h1, _ := d.join("h1")
	at := time.Now().UnixMilli()
	var records []wire.Attempt
	for _, unit := range []ids.ID{u1, u2, ids.New()} {
		records = append(records, wire.Attempt{ID: ids.New(), Unit: unit, Kind: wire.KindServe, Prompt: 1, Ending: wire.EndComplete, StartedMS: at, EndedMS: at})
	}
	text, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, wire.PathJournal, bytes.NewReader(text))
	if err := d.hub.store(r, &hostLink{id: h1}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 0, 0} {
		got := -1
		err := b.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), "SELECT count(*) FROM attempt_journal WHERE attempt_id = $1", records[i].ID).Scan(&got)
		})
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("record %d is stored %d times, want %d", i, got, want)
		}
	}
}
