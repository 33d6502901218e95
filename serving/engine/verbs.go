package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// Verbs is what an engine can be told beside requests. Each gives ErrUnsupported where Caps says that the engine lacks it, or
// where the engine was started without it. They change an engine for everybody, so they are for its supervisor alone: a base
// here is on loopback.
type Verbs interface {
	// Cancel ends one request by the id that ChatParams gave it. Closing its connection does as well; this reaches one whose
	// connection is held by something in between.
	Cancel(ctx context.Context, c *http.Client, base, id string) error
	// Drain tells the engine to take nothing new and to end by itself once what runs has ended, at the latest after limit.
	// Unsupported means that SIGTERM says it.
	Drain(ctx context.Context, c *http.Client, base string, limit time.Duration) error
	// Sleep gives the GPUs' memory back; the engine answers nothing until Wake. Nothing may run.
	Sleep(ctx context.Context, c *http.Client, base string) error
	Wake(ctx context.Context, c *http.Client, base string) error
	// LoadAdapter makes a model of the adapter's name, UnloadAdapter takes it away.
	LoadAdapter(ctx context.Context, c *http.Client, base string, a Adapter) error
	UnloadAdapter(ctx context.Context, c *http.Client, base, name string) error
	// Resize changes the number of data-parallel ranks, over which the experts are spread. It returns once the engine has
	// taken it on: Resizing tells when it is done. A conflict means that one is under way already.
	Resize(ctx context.Context, c *http.Client, base string, ranks int) error
	Resizing(ctx context.Context, c *http.Client, base string) (bool, error)
	// SwitchRole makes a prefill engine a decode engine, or the other way round. Nothing may run.
	SwitchRole(ctx context.Context, c *http.Client, base, role string) error
	// ResetPrefix forgets every prefix that no request holds.
	ResetPrefix(ctx context.Context, c *http.Client, base string) error
}

// noVerbs is for drivers to build on.
type noVerbs struct{}

func (noVerbs) Cancel(context.Context, *http.Client, string, string) error { return ErrUnsupported }

func (noVerbs) Drain(context.Context, *http.Client, string, time.Duration) error {
	return ErrUnsupported
}

func (noVerbs) Sleep(context.Context, *http.Client, string) error { return ErrUnsupported }
func (noVerbs) Wake(context.Context, *http.Client, string) error  { return ErrUnsupported }

func (noVerbs) LoadAdapter(context.Context, *http.Client, string, Adapter) error {
	return ErrUnsupported
}

func (noVerbs) UnloadAdapter(context.Context, *http.Client, string, string) error {
	return ErrUnsupported
}

func (noVerbs) Resize(context.Context, *http.Client, string, int) error { return ErrUnsupported }

func (noVerbs) Resizing(context.Context, *http.Client, string) (bool, error) {
	return false, ErrUnsupported
}

func (noVerbs) SwitchRole(context.Context, *http.Client, string, string) error {
	return ErrUnsupported
}

func (noVerbs) ResetPrefix(context.Context, *http.Client, string) error { return ErrUnsupported }

// tell sends a verb. A path that the server does not have, or has shut, is a verb that it was started without.
func tell(ctx context.Context, c *http.Client, url string, body []byte) ([]byte, error) {
	return ask(ctx, c, http.MethodPost, url, body)
}

func ask(ctx context.Context, c *http.Client, method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "The engine cannot be reached.")
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, fault.Wrap(err, fault.Upstream, "The engine broke off its answer.")
	}
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return answer, nil
	case s == http.StatusNotFound && (member(answer, "error") != nil || member(answer, "message") != nil): // the path is there
		return nil, fault.New(fault.NotFound, "The engine does not have it: %s", quote(answer))
	case s == http.StatusNotFound, s == http.StatusForbidden, s == http.StatusMethodNotAllowed, s == http.StatusNotImplemented:
		return nil, fmt.Errorf("%w: it was started without: %s", ErrUnsupported, quote(answer))
	case s == http.StatusConflict:
		return nil, fault.New(fault.Conflict, "The engine is at it already: %s", quote(answer))
	case s == http.StatusRequestTimeout:
		return nil, fault.New(fault.Timeout, "What runs did not end in time: %s", quote(answer))
	case s == http.StatusServiceUnavailable:
		return nil, fault.New(fault.Unavailable, "The engine cannot do that now: %s", quote(answer))
	case s >= 400 && s < 500:
		return nil, fault.New(fault.Invalid, "The engine refused: %s", quote(answer))
	default:
		return nil, fault.New(fault.Upstream, "The engine answered %s: %s", resp.Status, quote(answer))
	}
}

// object writes a JSON object of strings and numbers.
func object(pairs ...any) []byte {
	b := []byte{'{'}
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(scan.Quote(b, pairs[i].(string)), ':')
		switch v := pairs[i+1].(type) {
		case string:
			b = scan.Quote(b, v)
		case []byte:
			b = append(b, v...)
		default:
			b = fmt.Append(b, v)
		}
	}
	return append(b, '}')
}

// told reads one boolean of an answer.
func told(answer []byte, name string) (bool, error) {
	var all map[string]json.RawMessage
	var b bool
	if err := json.Unmarshal(answer, &all); err != nil || json.Unmarshal(all[name], &b) != nil {
		return false, fault.New(fault.Upstream, "The engine did not say %s: %s", name, quote(answer))
	}
	return b, nil
}

// adapterLoad and adapterUnload are the bodies that vLLM and SGLang share.
func adapterLoad(a Adapter) []byte     { return object("lora_name", a.Name, "lora_path", a.Path) }
func adapterUnload(name string) []byte { return object("lora_name", name) }

// checkID refuses no id: SGLang ends every request whose id begins with what it is told, and with nothing all of them do.
func checkID(id string) error {
	if id == "" {
		return fault.New(fault.Invalid, "Say which request is to end.")
	}
	return nil
}

func checkRanks(ranks int) error {
	if ranks < 1 {
		return fault.New(fault.Invalid, "An engine has at least one rank, not %d.", ranks)
	}
	return nil
}
