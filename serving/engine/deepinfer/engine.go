package deepinfer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"millrace/internal/fault"
)

// errCancelled is why a request that was cancelled by its id ended.
var errCancelled = errors.New("deepinfer: cancelled")

func (a *Adapter) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	resp, err := a.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, limit))
}

func (a *Adapter) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	resp, err := a.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
}

// do asks the engine. Its refusals keep their kind and words.
func (a *Adapter) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("deepinfer: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "The engine cannot be reached.")
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxSmall))
	return nil, refusal(resp.StatusCode, said)
}

// refusal reads an engine's error.
func refusal(status int, said []byte) error {
	about := member(said, "error")
	message, param := text(member(about, "message")), text(member(about, "param"))
	if message == "" {
		message = fmt.Sprintf("The engine answered %d.", status)
	}
	kind := fault.Upstream
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		kind = fault.Unavailable
	case status == http.StatusRequestEntityTooLarge:
		kind = fault.TooLarge
	case status >= 400 && status < 500:
		kind = fault.Invalid
	}
	f := fault.New(kind, "%s", strings.ToValidUTF8(message, "?"))
	if param != "" {
		f = f.WithParam(param)
	}
	return f
}

// events reads the data of server-sent events.
type events struct{ in *bufio.Reader }

func newEvents(r io.Reader) *events { return &events{bufio.NewReaderSize(r, maxSmall)} }

// next gives the next event's data, valid until the call after it; io.EOF at the end.
func (e *events) next() ([]byte, error) {
	var line []byte
	for {
		part, err := e.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if line = append(line, part...); len(line) > maxLine {
				return nil, fault.New(fault.Upstream, "The engine sent an event above %d MiB.", maxLine>>20)
			}
			continue
		case err != nil && (len(line)+len(part) == 0 || !errors.Is(err, io.EOF)):
			return nil, err
		}
		if len(line) > 0 {
			part = append(line, part...)
			line = line[:0]
		}
		if data, ok := bytes.CutPrefix(bytes.TrimRight(part, "\r\n"), []byte("data:")); ok {
			return bytes.TrimPrefix(data, []byte(" ")), nil
		}
		if err != nil {
			return nil, err
		}
	}
}
