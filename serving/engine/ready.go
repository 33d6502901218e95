package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// Limits of what is read from an engine outside the relay, in bytes.
const (
	maxAnswerBytes = 1 << 20  // a one-token answer, or an error
	maxTokensBytes = 64 << 20 // token ids of a 1M-token prompt, rendered
	maxMetricBytes = 8 << 20
	maxErrorText   = 300 // of an engine's answer quoted in an error
)

// oneToken generates a single token and checks that the answer counts one: health endpoints answer 200 while weights
// load or workers hang.
func oneToken(ctx context.Context, c *http.Client, base, model, capName string, members ...string) error {
	body := append([]byte(`{"model":`), scan.Quote(nil, model)...)
	body = append(body, `,"messages":[{"role":"user","content":"Say one word."}],"stream":false,"`+capName+`":1`...)
	for _, m := range members {
		body = append(append(body, ','), m...)
	}
	body = append(body, '}')
	answer, err := call(ctx, c, http.MethodPost, base+ChatPath, body, maxAnswerBytes)
	if err != nil {
		return err
	}
	var got struct {
		Choices []json.RawMessage `json:"choices"`
		Usage   struct {
			Completion int64 `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Choices) == 0 || got.Usage.Completion < 1 {
		return fault.New(fault.Upstream, "The engine answered without generating a token: %s", quote(answer))
	}
	return nil
}

// call makes one request and reads the answer up to limit bytes. A status other than 200 is a fault of kind Upstream.
func call(ctx context.Context, c *http.Client, method, url string, body []byte, limit int64) ([]byte, error) {
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
	answer, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(err, fault.Upstream, "The engine broke off its answer.")
	case resp.StatusCode != http.StatusOK:
		return nil, fault.New(fault.Upstream, "The engine answered %s: %s", resp.Status, quote(answer))
	case int64(len(answer)) > limit:
		return nil, fault.New(fault.Upstream, "The engine's answer is above %d bytes.", limit)
	}
	return answer, nil
}

func quote(answer []byte) string {
	if len(answer) > maxErrorText {
		answer = append(bytes.Clone(answer[:maxErrorText]), "…"...)
	}
	return string(bytes.ToValidUTF8(answer, []byte("?")))
}
