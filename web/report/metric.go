package report

import (
	"millrace/internal/money"
	"millrace/web/ui"
)

// Metric is what a report measures.
type Metric string

// The metrics.
const (
	Cost     Metric = "cost"
	Tokens   Metric = "tokens"
	Requests Metric = "requests"
)

// MetricOf reads a metric from an address; anything unknown is the cost.
func MetricOf(s string) Metric {
	switch m := Metric(s); m {
	case Tokens, Requests:
		return m
	}
	return Cost
}

// Of is the metric's value of a cell; never negative.
func (m Metric) Of(c Cell) int64 {
	switch m {
	case Tokens:
		return c.Usage.Tokens()
	case Requests:
		return c.Requests
	}
	return max(int64(c.Cost), 0)
}

// Format shows a value for reading.
func (m Metric) Format(v int64) string {
	switch m {
	case Tokens:
		return ui.FormatTokens(v)
	case Requests:
		return ui.FormatCount(v)
	}
	return ui.FormatMoney(money.Nano(v))
}

// Title heads a chart of the metric.
func (m Metric) Title() string {
	switch m {
	case Tokens:
		return "Tokens"
	case Requests:
		return "Requests"
	}
	return "Spend"
}

// Links are the three measures as choices that keep the rest of the address.
func (m Metric) Links(u Address) []ui.Segment {
	return []ui.Segment{
		{Href: u.With("metric", ""), Text: "Cost", On: m == Cost},
		{Href: u.With("metric", "tokens"), Text: "Tokens", On: m == Tokens},
		{Href: u.With("metric", "requests"), Text: "Requests", On: m == Requests},
	}
}
