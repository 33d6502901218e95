package responses

import (
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// Fail implements protocol.Answer: an error event in both shapes that clients read (flat as OpenAI's, nested as Open
// Responses'). End tells the failed response. frame is {"error": {message, type, param, code}}.
func (s *Stream) Fail(dst, frame []byte) []byte {
	if !s.begun {
		dst = s.Begin(dst, -1)
	}
	f := readFrame(frame)
	s.state.status, s.state.fault = Failed, f.appendError(nil)
	return s.errorEvent(dst, f)
}

func (s *Stream) errorEvent(dst []byte, f frame) []byte {
	dst = append(append(s.open(dst, "error"), `,"code":`...), f.code...)
	dst = append(append(append(append(dst, `,"message":`...), f.message...), `,"param":`...), f.param...)
	dst = append(append(append(append(dst, `,"error":{"type":`...), f.kind...), `,"code":`...), f.code...)
	dst = append(append(append(append(dst, `,"message":`...), f.message...), `,"param":`...), f.param...)
	return append(append(dst, '}'), closeEvent...)
}

// frame is an error of the pipeline: raw JSON values.
type frame struct{ kind, code, message, param []byte }

func readFrame(raw []byte) frame {
	f := frame{[]byte(`"server_error"`), []byte("null"), []byte(`"Something went wrong."`), []byte("null")}
	in := field.Member(raw, "error")
	for name, v := range map[string]*[]byte{"type": &f.kind, "code": &f.code, "message": &f.message, "param": &f.param} {
		if own := field.Member(in, name); own != nil {
			*v = own
		}
	}
	return f
}

// appendError appends the error of a response object, which has codes of its own.
func (f *frame) appendError(dst []byte) []byte {
	code := f.code
	if field.Text(f.kind) == "server_error" || field.IsNull(code) {
		code = scan.Quote(nil, "server_error")
	}
	dst = append(append(append(dst, `{"code":`...), code...), `,"message":`...)
	return append(append(dst, f.message...), '}')
}

// Failure is how the stored events of a response end that nobody will finish: an error event and the failed response, the
// first of which has the given number.
func Failure(seq int64, frame, object []byte) []byte {
	s := Stream{seq: seq}
	told := func(dst []byte, kind string, object []byte) []byte {
		return append(append(append(s.open(dst, kind), `,"response":`...), object...), closeEvent...)
	}
	var dst []byte
	if seq == 0 {
		begun := WithStatus(object, InProgress, []byte("null"))
		dst = told(told(dst, "response.created", begun), "response.in_progress", begun)
	}
	return told(s.errorEvent(dst, readFrame(frame)), "response.failed", object)
}
