package batch

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
)

// recorder is the client of a line's request: it keeps the answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

const warning = "Millrace-Warning"

func newRecorder(ignored []string) *recorder {
	w := &recorder{header: http.Header{}}
	if len(ignored) > 0 {
		w.header.Set(warning, "ignored: "+strings.Join(ignored, ", "))
	}
	return w
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }

// SetWriteDeadline lets the gate set one: memory is never late.
func (w *recorder) SetWriteDeadline(time.Time) error { return nil }

// result is the answer as a line of an output file.
func (w *recorder) result(a *attempt) []byte {
	out := appendHead(make([]byte, 0, w.body.Len()+256), a.id, a.line.CustomID)
	out = strconv.AppendInt(append(out, `{"status_code":`...), int64(w.status), 10)
	out = append(append(append(out, `,"request_id":"`...), ids.Format(ids.Request, a.id)...), `","body":`...)
	body := bytes.NewBuffer(out)
	if err := json.Compact(body, w.body.Bytes()); err != nil { // no answer is; a line must be JSON all the same
		body.Write([]byte("null"))
	}
	out = body.Bytes()
	if said := w.header.Values(warning); len(said) > 0 {
		text, _ := json.Marshal(strings.Join(said, "; ")) // a string: cannot fail
		out = append(append(out, `,"millrace_warning":`...), text...)
	}
	return append(out, "},\"error\":null}\n"...)
}

// appendHead begins a line of an output file, up to the answer.
func appendHead(dst []byte, id ids.ID, customID string) []byte {
	dst = hex.AppendEncode(append(dst, `{"id":"`+linePrefix...), id[:])
	return append(append(append(dst, `","custom_id":`...), customID...), `,"response":`...)
}

// Why a line has no answer.
const interrupted = "interrupted"

var unfinished = map[string]string{
	Expired:   `null,"error":{"code":"batch_expired","message":"This request could not be executed before the completion window expired."}}` + "\n",
	Cancelled: `null,"error":{"code":"batch_cancelled","message":"This request was not executed: the batch was cancelled."}}` + "\n",
	interrupted: `null,"error":{"code":"batch_interrupted","message":"A gateway ended while it executed this request, and it could not be executed again in time. ` +
		`If your usage has it, under the id of this line, it was paid."}}` + "\n",
}

// appendUnfinished is the error file's line of a line without an answer.
func appendUnfinished(dst []byte, batch ids.ID, l *q.LineResultsRow, outcome string) []byte {
	started := ids.Time(batch)
	if l.StartedAt != nil {
		started, outcome = *l.StartedAt, interrupted
	}
	return append(appendHead(dst, requestID(batch, l.N, l.Attempt, started), l.CustomID), unfinished[outcome]...)
}
