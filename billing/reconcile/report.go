package reconcile

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"millrace/internal/money"
)

// Sides of a comparison.
const (
	Engine   = "engine"
	Events   = "events"
	Ledger   = "ledger"
	Budgets  = "budgets"
	Log      = "log"
	Payments = "payments"
	Invoices = "invoices"
)

// Units of a line.
const (
	Tokens = "tokens"
	Nano   = "nano-USD"
	Count  = "count"
)

// Line is one comparison, or one class of a comparison's difference.
type Line struct {
	Side       string `json:"side"`       // where Left comes from
	Name       string `json:"name"`       // what is compared
	Class      string `json:"class"`      // why the sides may differ; "" = they may not
	Unit       string `json:"unit"`       // of the next three
	Left       int64  `json:"left"`       // what should be
	Right      int64  `json:"right"`      // what is
	Difference int64  `json:"difference"` // Left - Right of a class; else of every place without its sign, added up
	Count      int64  `json:"count"`      // attempts, organizations or rows, where that says something
	Explained  bool   `json:"explained"`
	Note       string `json:"note,omitempty"`
}

// Report is the outcome of a run.
type Report struct {
	At        time.Time `json:"at"`
	Watermark time.Time `json:"watermark"` // everything older was compared
	Rated     bool      `json:"rated"`     // the log was rated to its end at the watermark
	Lines     []Line    `json:"lines"`
	// What is not explained, added up.
	Unexplained       bool       `json:"unexplained"`
	UnexplainedTokens int64      `json:"unexplained_tokens"`
	UnexplainedNano   money.Nano `json:"unexplained_nano"`
}

// Parse reads a report as it is stored in reconcile_runs.
func Parse(text []byte) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("reconcile: a stored report cannot be read: %w", err)
	}
	return r, nil
}

// same adds a comparison whose sides must be equal.
func (r *Report) same(side, name, unit string, left, right, difference int64) {
	r.Lines = append(r.Lines, Line{Side: side, Name: name, Unit: unit, Left: left, Right: right, Difference: difference, Explained: difference == 0})
}

// sum adds up what is not explained.
func (r *Report) sum() {
	for _, l := range r.Lines {
		if l.Explained {
			continue
		}
		r.Unexplained = true
		size := max(l.Difference, -l.Difference)
		switch {
		case l.Unit == Nano:
			r.UnexplainedNano += money.Nano(size)
		case l.Unit == Tokens && l.Class != "":
			r.UnexplainedTokens += size
		case l.Unit == Tokens && l.Side != Engine:
			r.UnexplainedTokens += size
		}
	}
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "Compared up to %s", r.Watermark.UTC().Format(time.RFC3339))
	if !r.Rated {
		fmt.Fprint(w, " (the log is rated no further)")
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SIDE\tWHAT\tSHOULD BE\tIS\tDIFFERENCE\tUNIT\t")
	for _, l := range r.Lines {
		what := l.Name
		if l.Class != "" {
			what = "  " + l.Class
		}
		verdict := ""
		switch {
		case !l.Explained:
			verdict = "UNEXPLAINED"
		case l.Note != "":
			verdict = l.Note
		case l.Difference != 0:
			verdict = "explained"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Side, what, l.amount(l.Left), l.amount(l.Right), l.amount(l.Difference), l.unit(), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	verdict := "Every difference is explained."
	if r.Unexplained {
		verdict = fmt.Sprintf("UNEXPLAINED: %d tokens, %s USD", r.UnexplainedTokens, r.UnexplainedNano)
	}
	_, err := fmt.Fprintln(w, "\n"+verdict)
	return err
}

func (l *Line) amount(n int64) string {
	if l.Unit == Nano {
		return money.Nano(n).String()
	}
	return strconv.FormatInt(n, 10)
}

func (l *Line) unit() string {
	if l.Unit == Nano {
		return "USD"
	}
	return l.Unit
}
