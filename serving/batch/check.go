package batch

import (
	"bytes"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/engine/scan"
)

// Codes of what is wrong with an input file.
const (
	codeJSON    = "invalid_json_line"
	codeRequest = "invalid_request"
	codeMissing = "missing_required_parameter"
	codeTwice   = "duplicate_custom_id"
	codeMethod  = "invalid_method"
	codeURL     = "mismatched_url"
	codeModel   = "mismatched_model"
	codeNoModel = "model_not_found"
	codeEmpty   = "empty_batch"
	codeTooMany = "too_many_tasks"
	codeTooLong = "line_too_long"
	codeUnread  = "input_file_unreadable"
)

// request is a line that was read.
type request struct {
	customID []byte // as JSON, as it was sent
	name     string // and what it says
	body     []byte
}

func bad(code, param, format string, args ...any) *fault.Fault {
	return fault.New(fault.Invalid, format, args...).WithCode(code).WithParam(param)
}

// readRequest reads a line: {"custom_id": …, "method": "POST", "url": …, "body": {…}}.
func readRequest(text []byte, path string) (r request, f *fault.Fault) {
	if !utf8.Valid(text) || !json.Valid(text) {
		return r, bad(codeJSON, "", "This line is not valid JSON.")
	}
	var method, url []byte
	members := map[string]*[]byte{"custom_id": &r.customID, "method": &method, "url": &url, "body": &r.body}
	m := scan.Object(text)
	for m.Next() {
		to := members[string(m.Key)]
		switch {
		case to == nil:
			return r, bad(codeRequest, shown(m.Key), "A line has the members custom_id, method, url and body, and no others.")
		case *to != nil:
			return r, bad(codeRequest, shown(m.Key), "%s is given twice.", shown(m.Key))
		}
		*to = m.Value
	}
	if m.Err() != nil {
		return r, bad(codeJSON, "", "This line is not a JSON object.")
	}
	for _, name := range [...]string{"custom_id", "method", "url", "body"} {
		if *members[name] == nil {
			return r, bad(codeMissing, name, "This line has no %s.", name)
		}
	}
	return r, r.check(method, url, path)
}

func (r *request) check(method, url []byte, path string) *fault.Fault {
	if r.customID[0] != '"' || len(r.customID) <= len(`""`) || len(r.customID) > maxCustomID {
		return bad(codeRequest, "custom_id", "custom_id must be a string of 1 to %d bytes.", maxCustomID-len(`""`))
	}
	name, _ := scan.Text(nil, r.customID)
	r.name = string(name)
	if text, ok := scan.Text(nil, method); !ok || string(text) != http.MethodPost {
		return bad(codeMethod, "method", "The method must be POST.")
	}
	if text, ok := scan.Text(nil, url); !ok || string(text) != path {
		return bad(codeURL, "url", "The url must be the batch's endpoint, %s.", path)
	}
	if r.body[0] != '{' {
		return bad(codeRequest, "body", "The body must be an object.")
	}
	return nil
}

const maxShown = 64

func shown(b []byte) string { return string(bytes.ToValidUTF8(b[:min(len(b), maxShown)], nil)) }

// decode reads the request's body in the endpoint's dialect. own = what is wrong is the request's matter alone: it gets the
// dialect's error as its result, and the others run.
func (r *request) decode(e *Endpoint) (asked Asked, own bool, f *fault.Fault) {
	asked, err := guarded(func() (Asked, error) { return e.Check(r.body) })
	if err != nil {
		f := *fault.Of(err)
		if f.Code == "" {
			f.Code = codeRequest
		}
		f.Param = inBody(f.Param)
		return asked, f.Param != "body.model", &f
	}
	switch {
	case asked.Stream:
		return asked, false, bad(codeRequest, "body.stream", "Answers of a batch are not streamed: leave stream out.")
	case asked.Service == usage.Priority:
		return asked, false, bad(codeRequest, "body.service_tier", "Batches have a service tier of their own: leave service_tier out.")
	}
	return asked, false, nil
}

func inBody(param string) string {
	if param == "" {
		return "body"
	}
	return "body." + param
}
