package measure

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"millrace/internal/usage"
	"millrace/serving/engine"
)

// Limits of one answer.
const (
	answerTimeout = 5 * time.Minute
	maxLine       = 1 << 20 // bytes of one event
	maxErrorBody  = 300     // bytes shown
)

// Target is what is measured.
type Target struct {
	Base   string // root URL, as engine.CleanBase makes it
	Model  string // the name it knows
	Driver engine.Driver
	Client *http.Client // adds the key, if there is one

	ratio float64 // tokens of a word, as a sweep learnt; 0 = not known
}

// Answer is one timed answer.
type Answer struct {
	Prompt, Cached, Generated int64         // tokens, as the engine counts
	First, Last               time.Duration // since the request was sent
	at                        []time.Time   // when text came
}

// Token is the mean time between tokens after the first; 0 when there was one.
func (a *Answer) Token() time.Duration {
	if a.Generated < 2 {
		return 0
	}
	return (a.Last - a.First) / time.Duration(a.Generated-1)
}

var errNoTokens = errors.New("the answer had no tokens")

// ask sends one chat whose answer is exactly so many tokens long, where the engine knows how.
func (t *Target) ask(ctx context.Context, prompt string, tokens int) (a Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	content, err := json.Marshal(prompt)
	if err != nil {
		return a, err
	}
	chat := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%s}],"max_tokens":%d,"temperature":0`, t.Model, content, tokens)
	if t.Driver.Family() != engine.OpenAI { // providers refuse what they do not know
		chat = append(chat, `,"ignore_eos":true`...)
	}
	body, err := t.Driver.PrepareChat(nil, append(chat, '}'), engine.ChatParams{Model: t.Model})
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.Base+engine.ChatPath, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	sent := time.Now()
	resp, err := t.Client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		return a, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return t.read(resp.Body, sent)
}

// read times the events that carry text, and takes the last usage.
func (t *Target) read(body io.Reader, sent time.Time) (a Answer, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	done := false
	for lines.Scan() {
		line, is := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !is {
			continue
		}
		line = bytes.TrimSpace(line)
		if done = bytes.Equal(line, []byte("[DONE]")); done {
			break
		}
		now := time.Since(sent)
		if carriesText(line) {
			if a.First == 0 {
				a.First = now
			}
			a.Last = now
			a.at = append(a.at, sent.Add(now))
		}
		if bytes.Contains(line, t.Driver.UsageMark()) {
			report, err := t.Driver.Usage(line)
			if err != nil && !errors.Is(err, engine.ErrNoUsage) {
				return a, err
			}
			if err == nil {
				v := report.Vector
				a.Prompt, a.Cached, a.Generated = v.Prompt(), v[usage.Cached], v.Generated()
			}
		}
	}
	if err := lines.Err(); err != nil {
		return a, err
	}
	if !done {
		return a, io.ErrUnexpectedEOF
	}
	if a.First == 0 || a.Generated == 0 {
		return a, errNoTokens
	}
	return a, nil
}

// carriesText reports whether a chunk brings tokens: the first one often has a role alone.
func carriesText(chunk []byte) bool {
	var c struct {
		Choices []struct {
			Delta struct {
				Content          string `json:"content"`
				Reasoning        string `json:"reasoning"`
				ReasoningContent string `json:"reasoning_content"`
			} `json:"delta"`
		} `json:"choices"`
	}
	if json.Unmarshal(chunk, &c) != nil || len(c.Choices) == 0 {
		return false
	}
	d := c.Choices[0].Delta
	return d.Content != "" || d.Reasoning != "" || d.ReasoningContent != ""
}
