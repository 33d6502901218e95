package console

import (
	"millrace/internal/money"
	"millrace/web/ui"
)

// metric is what a report measures.
type metric string

const (
	metricCost     metric = "cost"
	metricTokens   metric = "tokens"
	metricRequests metric = "requests"
)

func metricOf(s string) metric {
	switch m := metric(s); m {
	case metricTokens, metricRequests:
		return m
	}
	return metricCost
}

func (m metric) of(c UsageCell) int64 {
	switch m {
	case metricTokens:
		return c.Usage.Tokens()
	case metricRequests:
		return c.Requests
	}
	return max(int64(c.Cost), 0)
}

func (m metric) format(v int64) string {
	switch m {
	case metricTokens:
		return ui.FormatTokens(v)
	case metricRequests:
		return ui.FormatCount(v)
	}
	return ui.FormatMoney(money.Nano(v))
}

func (m metric) title() string {
	switch m {
	case metricTokens:
		return "Tokens"
	case metricRequests:
		return "Requests"
	}
	return "Spend"
}

// links are the three measures as choices that keep the rest of the address.
func (m metric) links(u address) []ui.Segment {
	return []ui.Segment{
		{Href: u.with("metric", ""), Text: "Cost", On: m == metricCost},
		{Href: u.with("metric", "tokens"), Text: "Tokens", On: m == metricTokens},
		{Href: u.with("metric", "requests"), Text: "Requests", On: m == metricRequests},
	}
}
