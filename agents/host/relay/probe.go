package relay

import (
	"io"
	"net/http"
	"strings"

	"millrace/agents/host/journal"
	"millrace/agents/wire"
	"millrace/internal/ids"
)

// Probe gives the client for the agent's own questions to a unit's engine. A generation by it is journaled as a probe.
func Probe(j *journal.Journal, unit ids.ID, usageMark []byte) *http.Client {
	return &http.Client{Transport: &probe{j, unit, usageMark, loopback()}}
}

type probe struct {
	journal *journal.Journal
	unit    ids.ID
	mark    []byte
	rt      http.RoundTripper
}

// RoundTrip opens a record around a generation and ends it with the answer's body.
func (p *probe) RoundTrip(r *http.Request) (*http.Response, error) {
	if classify(r.Method, r.URL.Path) != generates {
		return p.rt.RoundTrip(r)
	}
	rec, err := p.journal.Begin(ids.New(), p.unit, wire.KindProbe)
	if err != nil {
		return nil, err
	}
	resp, err := p.rt.RoundTrip(r)
	if err != nil {
		rec.End(wire.EndEngineFailed)
		return nil, err
	}
	resp.Body = &probed{ReadCloser: resp.Body, meter: meter{mark: p.mark, record: rec}}
	return resp, nil
}

// probed counts what is read. Nobody else sees it, so what is read has been handed over.
type probed struct {
	io.ReadCloser
	meter meter
	whole bool
}

func (b *probed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.meter.scan(p[:n])
		b.meter.handedOver()
	}
	b.whole = b.whole || err == io.EOF
	return n, err
}

func (b *probed) Close() error {
	ending := wire.EndEngineFailed
	if b.whole {
		ending = wire.EndComplete
	}
	b.meter.record.End(ending)
	return b.ReadCloser.Close()
}

// Base is an engine's root URL for engine.Driver.
func Base(address string) string { return "http://" + strings.TrimSuffix(address, "/") }
