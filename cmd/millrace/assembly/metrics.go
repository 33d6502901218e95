package assembly

import (
	"github.com/prometheus/client_golang/prometheus"
)

// gauges reads what the rooms count themselves, when it is scraped: nothing is counted twice on the hot path.
type gauges struct {
	server *Server
}

var (
	descRunning   = prometheus.NewDesc("millrace_requests_running", "Requests being served by this gateway.", nil, nil)
	descBacklog   = prometheus.NewDesc("millrace_usage_backlog_events", "Usage events that the log has not acknowledged yet.", nil, nil)
	descBacklogS  = prometheus.NewDesc("millrace_usage_backlog_age_seconds", "Age of the oldest of them.", nil, nil)
	descHolds     = prometheus.NewDesc("millrace_credit_holds", "Holds that are open.", nil, nil)
	descValid     = prometheus.NewDesc("millrace_gateway_epoch_valid", "1 while this gateway may admit requests.", nil, nil)
	descBookings  = prometheus.NewDesc("millrace_route_bookings", "Requests sent to units and not ended.", nil, nil)
	descBlocks    = prometheus.NewDesc("millrace_route_prefix_blocks", "Prefix blocks in the index.", nil, nil)
	descPredicted = prometheus.NewDesc("millrace_route_predicted_hit_tokens_total", "Cached tokens that the index predicted.", nil, nil)
	descReported  = prometheus.NewDesc("millrace_route_reported_hit_tokens_total", "Cached tokens that engines reported for the same requests.", nil, nil)
	descOff       = prometheus.NewDesc("millrace_route_predictions_off_total", "Requests whose prediction was off by more than 64 tokens.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v)
	}
	r := g.server.Router.Stats()
	send(descBookings, prometheus.GaugeValue, float64(r.Bookings))
	send(descBlocks, prometheus.GaugeValue, float64(r.Blocks))
	send(descPredicted, prometheus.CounterValue, float64(r.PredictedTokens))
	send(descReported, prometheus.CounterValue, float64(r.ReportedTokens))
	send(descOff, prometheus.CounterValue, float64(r.Off))
	gw := g.server.gateway
	if gw == nil {
		return
	}
	events, _, age := gw.log.Backlog()
	valid := 0.0
	if gw.purse.Valid() {
		valid = 1
	}
	send(descRunning, prometheus.GaugeValue, float64(gw.gate.Running()))
	send(descBacklog, prometheus.GaugeValue, float64(events))
	send(descBacklogS, prometheus.GaugeValue, age.Seconds())
	send(descHolds, prometheus.GaugeValue, float64(gw.purse.Stats().Holds))
	send(descValid, prometheus.GaugeValue, valid)
}
