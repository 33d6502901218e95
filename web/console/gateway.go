package console

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"millrace/internal/fault"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Ask is one question to the public endpoint.
type Ask struct {
	Model, System, Message string
	MaxTokens              int64    // 0 = the model's default
	Temperature            *float64 // nil = the model's default
}

// Answer is what came back, whole.
type Answer struct {
	Text     string
	Thinking string
	Usage    usage.Vector
	Cost     money.Nano
}

const maxAnswerBytes = 8 << 20

// ask calls the public Chat Completions endpoint with a short-lived key, like any client. A refusal by the endpoint is
// a fault with its own message.
func (p *pages) ask(ctx context.Context, key string, a Ask) (*Answer, error) {
	body, err := json.Marshal(a.body())
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.PublicURL+playgroundPath, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := p.Gateway.Do(r)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "The service could not be reached. Try again in a moment.")
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "The answer broke off.")
	}
	return readAnswer(resp.StatusCode, raw)
}

// message is one turn of a chat request.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (a Ask) messages() []message {
	user := message{"user", a.Message}
	if a.System == "" {
		return []message{user}
	}
	return []message{{"system", a.System}, user}
}

// chatRequest is the body of a Chat Completions call, in the order people read it.
type chatRequest struct {
	Model       string    `json:"model"`
	Messages    []message `json:"messages"`
	MaxTokens   int64     `json:"max_tokens,omitempty"`
	Temperature *float64  `json:"temperature,omitempty"`
}

func (a Ask) body() chatRequest {
	return chatRequest{a.Model, a.messages(), a.MaxTokens, a.Temperature}
}

// chatAnswer is the part of a chat completion, or of its error, that the page shows.
type chatAnswer struct {
	Choices []struct {
		Message struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
		} `json:"message"`
	} `json:"choices"`
	Usage struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		PromptIn   struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionIn struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	} `json:"usage"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

func readAnswer(status int, raw []byte) (*Answer, error) {
	var a chatAnswer
	if err := json.Unmarshal(raw, &a); err != nil || status == http.StatusOK && len(a.Choices) == 0 {
		return nil, fault.New(fault.Upstream, "The service answered something that is not a completion.").WithCause(err)
	}
	if status != http.StatusOK {
		return nil, fault.New(fault.Invalid, "%s", a.Error.Message)
	}
	out := &Answer{Text: a.Choices[0].Message.Content, Thinking: a.Choices[0].Message.Reasoning}
	u := a.Usage
	out.Usage[usage.Input], out.Usage[usage.Cached] = u.Prompt-u.PromptIn.Cached, u.PromptIn.Cached
	out.Usage[usage.Output], out.Usage[usage.Reasoning] = u.Completion-u.CompletionIn.Reasoning, u.CompletionIn.Reasoning
	out.Usage[usage.Requests] = 1
	return out, nil
}
