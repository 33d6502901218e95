package batch

import (
	"strings"

	"millrace/serving/gate"
	"millrace/serving/protocol"
	"millrace/tenants/keys"
)

// Endpoint is what lines of a batch can be requests of. A new dialect is one more of these.
type Endpoint struct {
	Path string
	// Decode checks a request's body and says in which dialect it is answered.
	Decode func(body []byte, caller keys.Principal) (*protocol.ChatRequest, *gate.Dialect, error)
	// Fail is an error as the body of an answer.
	Fail func(err error) []byte
}

// Endpoints is the table of them.
type Endpoints []Endpoint

func (e Endpoints) find(path string) *Endpoint {
	for i := range e {
		if e[i].Path == path {
			return &e[i]
		}
	}
	return nil
}

func (e Endpoints) String() string {
	paths := make([]string, len(e))
	for i := range e {
		paths[i] = e[i].Path
	}
	return strings.Join(paths, ", ")
}
