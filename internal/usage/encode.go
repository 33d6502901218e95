package usage

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"millrace/internal/ids"
)

// AppendJSON appends the event as encoding/json writes it, on one line and without a line end. It exists because a gateway
// writes one for every request. The only error is a Raw that is no JSON; dst is then returned as it was.
func (e *Event) AppendJSON(dst []byte) ([]byte, error) {
	start := len(dst)
	b := appendID(append(dst, `{"id":`...), e.ID)
	b = appendUnlessZero(b, `,"progress":`, e.Progress)
	b = appendID(append(b, `,"org":`...), e.Org)
	b = appendID(append(b, `,"project":`...), e.Project)
	b = appendID(append(b, `,"key":`...), e.Key)
	b = appendID(append(b, `,"model":`...), e.Model)
	b = appendID(append(b, `,"price":`...), e.PriceVersion)
	b = appendID(append(b, `,"epoch":`...), e.Epoch)
	b = e.appendBudgets(append(b, `,"budgets":`...))
	b = appendID(append(b, `,"org_budget":`...), e.OrgBudget)
	b = e.appendAttempts(b)
	b = append(b, `,"usage":`...)
	for c, n := range e.Usage {
		b = append(b, "[,"[min(c, 1)])
		b = strconv.AppendInt(b, n, 10)
	}
	b = append(b, ']')
	if len(e.Raw) > 0 {
		var err error
		if b, err = appendRaw(append(b, `,"raw":`...), e.Raw); err != nil {
			return dst[:start], err
		}
	}
	if e.Doubt != "" {
		b = appendString(append(b, `,"doubt":`...), e.Doubt)
	}
	b = strconv.AppendInt(append(b, `,"charge":`...), int64(e.Charge), 10)
	b = appendString(append(b, `,"ending":`...), string(e.Ending))
	if e.Estimated {
		b = append(b, `,"estimated":true`...)
	}
	if e.Streamed {
		b = append(b, `,"streamed":true`...)
	}
	if e.Service != Ordinary {
		b = appendString(append(b, `,"service":`...), string(e.Service))
	}
	b = appendString(append(b, `,"dialect":`...), e.Dialect)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(e.Status), 10)
	b = strconv.AppendInt(append(b, `,"started_ms":`...), e.StartedMS, 10)
	b = appendUnlessZero(b, `,"first_token_ms":`, e.FirstTokenMS)
	b = strconv.AppendInt(append(b, `,"ended_ms":`...), e.EndedMS, 10)
	return append(b, '}'), nil
}

func (e *Event) appendBudgets(b []byte) []byte {
	if e.Budgets == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, id := range e.Budgets {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendID(b, id)
	}
	return append(b, ']')
}

func (e *Event) appendAttempts(b []byte) []byte {
	for i, a := range e.Attempts {
		if i == 0 {
			b = append(b, `,"attempts":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendID(append(b, `{"id":`...), a.ID)
		b = appendID(append(b, `,"unit":`...), a.Unit)
		if a.Note != "" {
			b = appendString(append(b, `,"note":`...), a.Note)
		}
		if a.Leg != "" {
			b = appendString(append(b, `,"leg":`...), string(a.Leg))
			b = appendUnlessZero(b, `,"prompt":`, a.Prompt)
			b = appendUnlessZero(b, `,"generated":`, a.Generated)
		}
		b = append(b, '}')
	}
	if len(e.Attempts) > 0 {
		b = append(b, ']')
	}
	return b
}

func appendUnlessZero(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), n, 10)
}

// appendID writes the id's usual form, 8-4-4-4-12 digits.
func appendID(b []byte, id ids.ID) []byte {
	b = hex.AppendEncode(append(b, '"'), id[:4])
	b = hex.AppendEncode(append(b, '-'), id[4:6])
	b = hex.AppendEncode(append(b, '-'), id[6:8])
	b = hex.AppendEncode(append(b, '-'), id[8:10])
	b = hex.AppendEncode(append(b, '-'), id[10:])
	return append(b, '"')
}

// appendString writes the words of our own that events carry; whatever else comes is left to encoding/json.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(fmt.Sprintf("usage: a string cannot be written: %v", err)) // every string can
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendRaw writes an engine's usage object in one line: as it came, unless it has white space or what HTML would read.
func appendRaw(b []byte, raw []byte) ([]byte, error) {
	if !json.Valid(raw) {
		return b, fmt.Errorf("usage: the engine's usage is no JSON: %.80q", raw)
	}
	for _, c := range raw {
		if c <= ' ' || c >= 0x7f || c == '<' || c == '>' || c == '&' {
			compact, err := json.Marshal(json.RawMessage(raw))
			if err != nil {
				return b, fmt.Errorf("usage: the engine's usage is no JSON: %w", err)
			}
			return append(b, compact...), nil
		}
	}
	return append(b, raw...), nil
}
