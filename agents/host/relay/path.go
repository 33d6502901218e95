package relay

import (
	"net/http"
	"net/url"
	gopath "path"
	"strings"

	"millrace/agents/wire"
	"millrace/internal/ids"
)

// What a request may do to an engine.
type permission uint8

const (
	notAllowed permission = iota
	generates             // costs tokens: needs an attempt id, has a journal record
	asks                  // reads, renders or counts
)

// classify lets inference through and nothing else: an engine's development and weight-loading endpoints stay on loopback.
func classify(method, path string) permission {
	switch method {
	case http.MethodPost:
		switch {
		case path == "/abort_request", path == "/inference/v1/abort_requests": // a gateway's own request that it gave up
			return asks
		case strings.HasSuffix(path, "/render") || path == "/tokenize" || path == "/detokenize":
			return asks
		case strings.HasPrefix(path, "/v1/") && !strings.Contains(path, "lora"), path == "/inference/v1/generate":
			return generates
		}
	case http.MethodGet:
		switch path {
		case "/health", "/metrics", "/v1/models", "/version":
			return asks
		}
	}
	return notAllowed
}

// split cuts /units/<id>/<the engine's path>.
func split(u *url.URL) (unit ids.ID, path string, ok bool) {
	rest, ok := strings.CutPrefix(u.Path, wire.DataPrefix)
	if !ok {
		return ids.Nil, "", false
	}
	name, path, ok := strings.Cut(rest, "/")
	if !ok {
		return ids.Nil, "", false
	}
	unit, err := ids.Parse(ids.Unit, name)
	path = "/" + path
	// What an engine may take for another path than the one that is judged here goes nowhere.
	return unit, path, err == nil && gopath.Clean(path) == path && !strings.ContainsAny(path, "\\%;\r\n")
}

// hopByHop are headers of one connection, in canonical form; both ways.
var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// ownHeaders never reach an engine: ours, and every credential.
var ownHeaders = map[string]bool{
	wire.HeaderAttempt: true, wire.HeaderKind: true, wire.HeaderRefused: true,
	"Authorization": true, "Cookie": true, "X-Api-Key": true,
}
