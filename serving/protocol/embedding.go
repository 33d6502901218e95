package protocol

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"millrace/internal/fault"
	"millrace/serving/engine"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// Embeddings: texts in, vectors out. There is no stream; the engine's vectors are passed on as they stand.

// Limits of a request.
const (
	maxInputs     = 2048
	maxDimensions = 1 << 16
)

var embeddingMembers map[string]member

func init() {
	embeddingMembers = members(map[string]check{
		"model": model, "encoding_format": oneOf("float", "base64"), "user": ignored,
		"input": func(r *chatReader, name string, v []byte) error { return r.texts(name, v, maxInputs) },
		"dimensions": func(_ *chatReader, name string, v []byte) error {
			_, err := field.Integer(name, v, 1, maxDimensions)
			return err
		},
	})
}

// DecodeEmbedding checks the body of a request for embeddings. Faults are as DecodeChat's.
func DecodeEmbedding(body []byte) (*ChatRequest, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, fault.New(fault.Invalid, "The request body is not valid JSON.").WithCode("invalid_json")
	}
	return (&chatReader{req: &ChatRequest{Body: body, N: 1, TextBytes: -1, Task: TaskEmbedding}, known: embeddingMembers}).decode()
}

// Path is where engines take a task.
func (t Task) Path() string {
	switch t {
	case TaskText:
		return engine.CompletionPath
	case TaskEmbedding:
		return engine.EmbeddingPath
	}
	return engine.ChatPath
}

// Embeddings appends the answer that a client gets of an engine's, and gives the engine's count of the input's tokens; -1 =
// it did not count. ErrMalformed: the engine's is none.
func Embeddings(dst, answer []byte, model string) ([]byte, int64, error) {
	if !json.Valid(answer) || answer[scan.Space(answer, 0)] != '{' {
		return dst, -1, ErrMalformed
	}
	data, tokens := field.Member(answer, "data"), int64(-1)
	if data == nil || !field.IsArray(data) {
		return dst, -1, ErrMalformed
	}
	if u := field.Member(answer, "usage"); u != nil && field.IsObject(u) {
		if n, err := strconv.ParseInt(string(field.Member(u, "prompt_tokens")), 10, 64); err == nil && n >= 0 {
			tokens = n
		}
	}
	dst = append(append(append(dst, `{"object":"list","data":`...), data...), `,"model":`...)
	return scan.Quote(dst, model), tokens, nil
}
