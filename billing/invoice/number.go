package invoice

import (
	"context"
	"fmt"
	"time"

	"millrace/db/q"
)

// Prefixes of numbers, unless Config says otherwise.
const (
	invoicePrefix = "INV"
	notePrefix    = "CN"
)

// nextNumber takes the next number of a series, which begins anew each year. The series' row is locked until the
// transaction ends, so no number is missing and none is used twice.
func nextNumber(ctx context.Context, r *q.Queries, prefix string, now time.Time) (string, error) {
	series := fmt.Sprintf("%s-%d", prefix, now.UTC().Year())
	n, err := r.NextInvoiceNumber(ctx, series)
	if err != nil {
		return "", fmt.Errorf("invoice: the next number: %w", err)
	}
	return fmt.Sprintf("%s-%05d", series, n), nil
}
