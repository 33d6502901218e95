package rate

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the rater's and the fence's numbers. Money is counted in the ledger, not here.
type meters struct {
	events, known, repriced, overruns, quarantined prometheus.Counter
	batches, gaps, rollbacks                       prometheus.Counter
	lag                                            prometheus.Gauge
}

func newMeters(reg prometheus.Registerer) (*meters, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "rater", Name: name, Help: help})
	}
	m := &meters{
		events:      counter("events_total", "Usage events booked."),
		known:       counter("events_skipped_total", "Usage events read again, or put aside."),
		repriced:    counter("events_repriced_total", "Usage events whose price version was not in effect."),
		overruns:    counter("events_overrun_total", "Usage events with a part that the operator bears."),
		quarantined: counter("events_quarantined_total", "Usage events that cannot be booked."),
		batches:     counter("batches_total", "Batches booked."),
		gaps:        counter("log_gaps_total", "Parts of the log that were gone before they were rated."),
		rollbacks:   counter("log_rollbacks_total", "Times the log had lost messages that were rated."),
		lag:         prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "millrace", Subsystem: "rater", Name: "lag_seconds", Help: "Age of the oldest message that is not rated."}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.events, m.known, m.repriced, m.overruns, m.quarantined, m.batches, m.gaps, m.rollbacks, m.lag} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *meters) count(b *batch, booked []*entry) {
	m.batches.Inc()
	m.events.Add(float64(len(booked)))
	m.known.Add(float64(len(b.entries) - len(booked)))
	for _, e := range booked {
		if e.repriced {
			m.repriced.Inc()
		}
		if e.overrun > 0 {
			m.overruns.Inc()
		}
	}
	for _, e := range b.entries {
		if e.reason != "" {
			m.quarantined.Inc()
		}
	}
}
