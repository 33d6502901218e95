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
	descHanded    = prometheus.NewDesc("millrace_handover_attempts_total", "Attempts at units whose engines hand prompts over.", nil, nil)
	descAlone     = prometheus.NewDesc("millrace_handover_decode_alone_total", "Prompts that a decode engine computed itself because no prefill engine had.", nil, nil)
	descUntold    = prometheus.NewDesc("millrace_handover_untold_total", "Prefills that told nothing of where their cache is.", nil, nil)
	descAgain     = prometheus.NewDesc("millrace_handover_retries_total", "Attempts that failed before the first token and went on with another pair.", nil, nil)
	descReplayed  = prometheus.NewDesc("millrace_handover_replays_total", "Answers that an engine broke off and another went on with.", nil, nil)
	descUnencoded = prometheus.NewDesc("millrace_handover_images_not_encoded_total", "Images that no encoder took.", nil, nil)
	descTransfers = prometheus.NewDesc("millrace_handover_running", "Prompts on their way from prefill to decode engines.", nil, nil)
	descLegs      = prometheus.NewDesc("millrace_handover_legs", "Legs that run beside, or after, their requests.", nil, nil)
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
	send(descTransfers, prometheus.GaugeValue, float64(r.Transfers))
	gw := g.server.gateway
	if gw == nil {
		return
	}
	h := gw.gate.Stats()
	send(descHanded, prometheus.CounterValue, float64(h.Handed))
	send(descAlone, prometheus.CounterValue, float64(h.Alone))
	send(descUntold, prometheus.CounterValue, float64(h.Untold))
	send(descAgain, prometheus.CounterValue, float64(h.Again))
	send(descReplayed, prometheus.CounterValue, float64(h.Replayed))
	send(descUnencoded, prometheus.CounterValue, float64(h.Unencoded))
	send(descLegs, prometheus.GaugeValue, float64(h.Legs))
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
