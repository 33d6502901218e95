package export_test

import (
	"testing"
	"time"

	"millrace/billing/export"
)

// Sums come from rollups of quarters of an hour, and from the requests where a range begins or ends within one: whatever the
// range, they are the requests'.
func TestSumsOfAnyRangeAreTheRequests(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme")
	w.use(c, c.key, monthStart.Add(23*time.Hour), 31*time.Second, 400) // over a midnight
	first := monthStart.Add(23 * time.Hour)
	for _, span := range [][2]time.Duration{{0, time.Hour}, {0, 3 * time.Hour}, {7 * time.Minute, 8 * time.Minute}, {14 * time.Minute, 16 * time.Minute},
		{time.Second, 2*time.Hour + 59*time.Second}, {15 * time.Minute, 44 * time.Minute}, {50 * time.Minute, 70 * time.Minute}, {31 * time.Second, 62 * time.Second}} {
		in := export.Query{Kind: export.Usage, Org: c.id, From: first.Add(span[0]), To: first.Add(span[1])}
		_, requests := w.write(in, export.CSV)
		for kind, columns := range map[export.Kind][3]string{export.Revenue: {"charged_usd", "input_tokens", "requests"},
			export.Costs: {"BilledCost", "x_input_tokens", "x_requests"}} {
			in.Kind = kind
			_, sums := w.write(in, export.CSV)
			if requests.Total.Rows == 0 || sums.Total.Sums[columns[0]] != requests.Total.Sums["charged_usd"] || sums.Total.Sums[columns[1]] != requests.Total.Sums["input_tokens"] ||
				sums.Total.Sums[columns[2]] != requests.Total.Sums["requests"] {
				t.Errorf("%s of %v: %v, requests say %v", kind, span, sums.Total.Sums, requests.Total.Sums)
			}
		}
	}
}
