package deepinfer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"millrace/internal/fault"
	"millrace/serving/engine/dsml"
	"millrace/serving/engine/scan"
)

// steering are the members of a chat that the engine gets beside the prompt: they come from the gateway alone.
var steering = []string{"cache_salt", "priority"}

// rankHeader names the data-parallel rank that shall compute a request, as at vLLM.
const rankHeader = "X-Data-Parallel-Rank"

// chat answers a Chat Completions request, streamed or whole.
func (a *Adapter) chat(w http.ResponseWriter, r *http.Request) error {
	body, prompt, err := a.read(w, r)
	if err != nil {
		return err
	}
	id := text(member(body, "request_id"))
	ctx, leave, err := a.enter(r.Context(), id)
	if err != nil {
		return err
	}
	defer leave()
	resp, err := a.do(ctx, http.MethodPost, "/v1/completions", raw(prompt, body, r.Header.Get(rankHeader), dsml.Request{Model: a.model, ID: id, MaxTokens: limit(body)}))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out := &relay{stream: dsml.NewStream(prompt.Parse, nil), events: newEvents(resp.Body),
		head: head(id, a.model), one: choices(body) <= 1}
	if string(member(body, "stream")) == "true" {
		return out.send(ctx, w)
	}
	return out.whole(ctx, w, id, a.model)
}

// raw is the engine's body.
func raw(prompt *dsml.Prompt, body []byte, rank string, q dsml.Request) []byte {
	out := prompt.AppendRequest(nil, body, q)
	out = out[:len(out)-1]
	for _, name := range steering {
		if v := member(body, name); v != nil {
			out = append(append(append(out, `,"`...), name...), `":`...)
			out = append(out, v...)
		}
	}
	if n, err := strconv.ParseUint(rank, 10, 16); err == nil {
		out = strconv.AppendUint(append(out, `,"data_parallel_rank":`...), n, 10)
	}
	return append(out, '}')
}

// limit is the cap on generated tokens, 0 = none.
func limit(body []byte) int64 {
	for _, name := range []string{"max_completion_tokens", "max_tokens"} {
		if n, err := strconv.ParseInt(string(member(body, name)), 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

func choices(body []byte) int64 {
	n, _ := strconv.ParseInt(string(member(body, "n")), 10, 64) // what is no number the engine refuses
	return n
}

// head is what every chunk begins with.
func head(id, model string) []byte {
	b := scan.Quote([]byte(`{"id":`), "chatcmpl-"+id)
	return append(scan.Quote(append(b, `,"model":`...), model), ',')
}

// relay turns an engine's events into chunks.
type relay struct {
	stream *dsml.Stream
	events *events
	head   []byte
	one    bool // choice: when it is over, the answer is; of several, some may not have been heard of yet
	chunk  []byte
}

// next gives the next chunk, nil at the end. An engine that breaks off is an error.
func (x *relay) next(ctx context.Context) ([]byte, error) {
	if x.one && x.stream.Done() { // whatever the engine still says: its connection is closed
		return nil, nil
	}
	data, err := x.events.next()
	switch {
	case errors.Is(context.Cause(ctx), errCancelled):
		return nil, errCancelled
	case errors.Is(err, io.EOF):
		return nil, fault.New(fault.Upstream, "The engine broke off its answer.")
	case err != nil:
		return nil, fault.Wrap(err, fault.Upstream, "The engine broke off its answer.")
	case string(data) == "[DONE]":
		return nil, nil
	}
	at := len(x.head) - 1
	x.chunk = append(x.chunk[:0], x.head[:at]...) // its last byte takes the place of the chunk's first
	if x.chunk, err = x.stream.Add(x.chunk, data); err != nil {
		return nil, fault.Wrap(err, fault.Upstream, "The engine's answer cannot be read.")
	}
	if x.chunk[at] == '{' && member(x.chunk[at:], "error") == nil {
		x.chunk[at] = ','
		return x.chunk, nil
	}
	return x.chunk[at:], nil // an error, as it came
}

// send streams. What fails after the first chunk is an error in the stream.
func (x *relay) send(ctx context.Context, w http.ResponseWriter) error {
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	var line []byte
	write := func(data []byte) error {
		line = append(append(append(line[:0], "data: "...), data...), "\n\n"...)
		if _, err := w.Write(line); err != nil {
			return err
		}
		return out.Flush()
	}
	for {
		chunk, err := x.next(ctx)
		switch {
		case errors.Is(err, errCancelled):
			chunk := append(append([]byte{}, x.head...), `"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`...)
			_ = write(chunk)
			_ = write([]byte("[DONE]"))
			return nil
		case ctx.Err() != nil:
			return nil // the client left
		case err != nil:
			f := fault.Of(err)
			_ = write(append(scan.Quote([]byte(`{"error":{"code":502,"message":`), f.Message), "}}"...))
			return nil
		case chunk == nil:
			_ = write([]byte("[DONE]"))
			return nil
		}
		if write(chunk) != nil {
			return nil // the client left
		}
	}
}
