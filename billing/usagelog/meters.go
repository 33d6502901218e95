package usagelog

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the log's numbers.
type meters struct {
	events, messages, retries prometheus.Counter
	wait                      prometheus.Histogram
}

// newMeters makes and, where there is a registry, registers them.
func newMeters(l *Log, reg prometheus.Registerer) (*meters, error) {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "millrace", Subsystem: "usage_log", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	m := &meters{
		events:   counter("events_total", "Usage events acknowledged."),
		messages: counter("messages_total", "Messages acknowledged, each with the events that came while the one before was under way."),
		retries:  counter("retries_total", "Messages that were not acknowledged and are sent again."),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "millrace", Subsystem: "usage_log", Name: "wait_seconds",
			Help: "From a message's first event to its acknowledgement.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}),
	}
	if reg == nil {
		return m, nil
	}
	gauge := func(name, help string, of func(*writer) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts(name, help)), func() float64 { return of(l.writer) })
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.events, m.messages, m.retries, m.wait,
		gauge("backlog_events", "Usage events not acknowledged.", func(w *writer) float64 { return float64(w.events.Load()) }),
		gauge("backlog_bytes", "Bytes of usage events not acknowledged.", func(w *writer) float64 { return float64(w.bytes.Load()) }),
		gauge("backlog_seconds", "Age of the oldest usage event not acknowledged.", func(*writer) float64 { return l.oldest().Seconds() })} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
