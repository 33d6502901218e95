package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/tenants/audit"
)

// intruder speaks to the hub's listener as whoever holds a certificate.
type intruder struct {
	b   *bench
	cfg *tls.Config
}

// as shows a certificate and takes the hub's for what it is.
func (b *bench) as(source *pki.Source) intruder {
	return intruder{b, b.ca.Trust().Dial(source, pki.Hub)}
}

// call gives the status of the answer, 0 when the listener let nobody speak.
func (i intruder) call(method, path string, body any) (int, []byte) {
	i.b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		i.b.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(i.b.t.Context(), method, "https://"+i.b.addr+path, bytes.NewReader(text))
	if err != nil {
		i.b.t.Fatal(err)
	}
	rt := &http.Transport{TLSClientConfig: i.cfg}
	defer rt.CloseIdleConnections()
	return answered(i.b.t, rt, req)
}

func answered(t *testing.T, rt http.RoundTripper, req *http.Request) (int, []byte) {
	t.Helper()
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // an answer that breaks off has its status all the same
	return resp.StatusCode, text
}

// link gives the status with which a link is refused; 0 when the listener let nobody speak, 101 when it is taken.
func (i intruder) link() int {
	l, err := link.Dial(i.b.t.Context(), "wss://"+i.b.addr+wire.PathLink, i.cfg, nil, http.NotFoundHandler(), quiet)
	if err == nil {
		l.Close()
		return http.StatusSwitchingProtocols
	}
	refused, ok := err.(*link.Refused)
	if !ok {
		return 0
	}
	return refused.Status
}

func csr(t *testing.T) (request, key []byte) {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err = pki.Request(key)
	if err != nil {
		t.Fatal(err)
	}
	return request, key
}

// identityBy is a certificate of a host by an authority, from whatever time it lives in.
func identityBy(t *testing.T, ca *pki.CA, host ids.ID) *pki.Source {
	t.Helper()
	request, key := csr(t)
	cert, err := ca.IssueHost(request, host)
	if err != nil {
		t.Fatal(err)
	}
	pair, _, err := pki.Identity(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pki.NewSource(pair, clock.System)
}

// joined makes a host by the public way.
func (b *bench) joined(name string) (ids.ID, *pki.Source) {
	b.t.Helper()
	status, out, key := b.tryToken(b.token(name))
	if status != http.StatusOK {
		b.t.Fatal(status)
	}
	pair, _, err := pki.Identity(out.Cert, key)
	if err != nil {
		b.t.Fatal(err)
	}
	return out.Host, pki.NewSource(pair, clock.System)
}

func (b *bench) tryToken(token string) (int, wire.JoinResponse, []byte) {
	b.t.Helper()
	request, key := csr(b.t)
	status, text := intruder{b, pki.DialJoin(b.ca.Digest(), clock.System)}.call(http.MethodPost, wire.PathJoin, wire.JoinRequest{Token: token, CSR: request})
	var out wire.JoinResponse
	if status == http.StatusOK {
		if err := json.Unmarshal(text, &out); err != nil {
			b.t.Fatal(err)
		}
	}
	return status, out, key
}

// audited gives the entries of an action: who, about whom, and what.
func (b *bench) audited(action string) (out []string) {
	b.t.Helper()
	err := b.db.InTx(b.t.Context(), db.System(), func(tx pgx.Tx) error {
		out = nil
		entries, err := audit.List(b.t.Context(), tx, ids.Nil, ids.Nil, 10_000)
		for _, e := range entries {
			if e.Action == action {
				out = append(out, strings.Join([]string{e.By.Actor, e.By.IP, e.Target, string(e.After)}, " "))
			}
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// untilAudited waits for an entry with these words: what a handshake refuses is written beside the answer.
func (b *bench) untilAudited(words ...string) {
	b.t.Helper()
	until(b.t, "an audit entry with "+strings.Join(words, ", "), func() bool {
		for _, e := range b.audited("host.refused") {
			all := true
			for _, w := range words {
				all = all && strings.Contains(e, w)
			}
			if all {
				return true
			}
		}
		return false
	})
}

// linkAs is a link of a host whose agent is not ours.
func (b *bench) linkAs(source *pki.Source) *link.Link {
	b.t.Helper()
	l, err := link.Dial(context.Background(), "wss://"+b.addr+wire.PathLink, b.ca.Trust().Dial(source, pki.Hub), nil, http.NotFoundHandler(), quiet)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(l.Close)
	return l
}

// say sends a body over a link.
func (b *bench) say(l *link.Link, method, path, body string) (int, []byte) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://link"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	return answered(b.t, l.Transport(), req)
}

func text(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
