package responses

import (
	"millrace/serving/engine/scan"
)

// Fail implements protocol.Answer: an error event in both shapes that clients read (flat as OpenAI's, nested as Open
// Responses'), then the failed response. frame is {"error": {message, type, param, code}}.
func (s *Stream) Fail(dst, frame []byte) []byte {
	if !s.begun {
		dst = s.Begin(dst, -1)
	}
	s.failed = true
	f := readFrame(frame)
	dst = append(append(s.open(dst, "error"), `,"code":`...), f.code...)
	dst = append(append(append(append(dst, `,"message":`...), f.message...), `,"param":`...), f.param...)
	dst = append(append(append(append(dst, `,"error":{"type":`...), f.kind...), `,"code":`...), f.code...)
	dst = append(append(append(append(dst, `,"message":`...), f.message...), `,"param":`...), f.param...)
	dst = append(append(dst, '}'), closeEvent...)
	s.state.status, s.state.fault = Failed, f.appendError(nil)
	s.keep()
	return s.whole(dst, "response.failed")
}

// frame is an error of the pipeline: raw JSON values.
type frame struct{ kind, code, message, param []byte }

func readFrame(raw []byte) frame {
	f := frame{[]byte(`"server_error"`), []byte("null"), []byte(`"Something went wrong."`), []byte("null")}
	outer, err := fields(raw, "error")
	if err != nil || outer[0] == nil {
		return f
	}
	in, err := fields(outer[0], "type", "code", "message", "param")
	if err != nil {
		return f
	}
	for i, v := range []*[]byte{&f.kind, &f.code, &f.message, &f.param} {
		if in[i] != nil {
			*v = in[i]
		}
	}
	return f
}

// appendError appends the error of a response object, which has codes of its own.
func (f *frame) appendError(dst []byte) []byte {
	code := f.code
	if text(f.kind) == "server_error" || isNull(code) {
		code = scan.Quote(nil, "server_error")
	}
	dst = append(append(append(dst, `{"code":`...), code...), `,"message":`...)
	return append(append(dst, f.message...), '}')
}
