package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// sdk is where the programs are that use the official clients.
const sdk = "../../../test/sdk"

// Limits.
const (
	installLimit = 10 * time.Minute
	sdkLimit     = 5 * time.Minute // of one program; a real engine on a busy machine is slow
)

// sdkAsk tells a program whom to ask, and what: every language asks the same.
type sdkAsk struct {
	URL     string                     `json:"url"`
	Key     string                     `json:"key"`
	PoorKey string                     `json:"poor_key"` // of a customer without credit
	Model   string                     `json:"model"`
	Small   string                     `json:"small"`  // a model with a small context
	Broken  string                     `json:"broken"` // a model whose engine fails in mid-stream
	Leave   string                     `json:"leave"`  // the URL for the answer that is left
	Story   string                     `json:"story"`
	TooLong string                     `json:"too_long"`
	Image   string                     `json:"image"` // a data URL
	Tools   map[string]json.RawMessage `json:"tools"`
	Only    []string                   `json:"only,omitempty"`  // scenarios; none = all
	Brief   int                        `json:"brief,omitempty"` // tokens of an answer; 0 = as the model ends it
}

// smallContext is of the model for prompts that are too long.
const smallContext = 4096

func newSDKAsk(c *customer) sdkAsk {
	return sdkAsk{
		URL: c.url, Key: c.secret, Model: c.model,
		Story:   "Tell me a story of a mill, a river and a ledger, please.",
		TooLong: strings.Repeat("the mill turns ", smallContext),
		Image:   "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
		Tools: map[string]json.RawMessage{
			"get_weather": json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":2}},"required":["city","days"],"additionalProperties":false}`),
			"get_time":    json.RawMessage(`{"type":"object","properties":{"zone":{"type":"string"}},"required":["zone"],"additionalProperties":false}`),
		},
	}
}

// sdkAnswer is what a client saw of an answer.
type sdkAnswer struct {
	Request   string
	Text      string
	Reasoning string
	Finish    string
	Pieces    int64
	Calls     []sdkCall
	Usage     struct{ Prompt, Completion, Cached, Reasoning int64 }
}

// sdkCall is a call of a function; Input where the client has parsed the arguments.
type sdkCall struct {
	ID, Name, Arguments string
	Input               json.RawMessage
}

// sdkFailure is what a client made of a refusal.
type sdkFailure struct {
	Class, Code, Type, Param, Message, Request string
	Status, Tries                              int
}

// sdkSaw is what a client saw in one scenario.
type sdkSaw struct {
	Scenario   string
	Unexpected string // an exception
	sdkAnswer
	Turns    []sdkAnswer
	Parsed   json.RawMessage
	Sealed   *bool // whether there was reasoning that the client keeps
	Failures map[string]sdkFailure
	Models   []string
	Model    string
	Counted  int64 // tokens of a prompt, asked for beforehand
	First    string
	Same     bool
	Items    []string
	Gone     bool
	Facts    json.RawMessage
}

// sdkProgram runs the scenarios of an API in one language: command api ask.
type sdkProgram struct {
	apis    []string
	words   sdkWords // how answers end, where the client does not say it as the API
	lacks   []string // "API scenario" or "API failure" that the client has no way to play
	command func(*testing.T) []string
}

// run plays an API's scenarios.
func (p sdkProgram) run(t *testing.T, api string, ask sdkAsk) map[string]sdkSaw {
	t.Helper()
	command := p.command(t)
	in, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), sdkLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], append(command[1:], api, string(in))...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		t.Fatalf("%s %s: %v", command, api, err)
	}
	all := map[string]sdkSaw{}
	for line := range bytes.Lines(out) {
		var saw sdkSaw
		if err := json.Unmarshal(line, &saw); err != nil {
			t.Fatalf("%s %s said %s: %v", command, api, line, err)
		}
		all[saw.Scenario] = saw
	}
	return all
}

// prove plays every scenario with every API of a program, and judges what it saw.
func (p sdkProgram) prove(t *testing.T) {
	p.command(t) // what must be installed is, before anything waits for it
	_, small := someonesEngine(t)
	_, broken := someonesEngine(t, "--faults")
	fails, err := http.Post(broken+"/sim/faults", "application/json", strings.NewReader(`{"error_in_stream":5,"streams_only":true}`))
	if err != nil {
		t.Fatal(err)
	}
	fails.Body.Close()
	u := startUp(t, config(folder(t), "--attach", "acme/small="+small+",engine=vllm", "--attach", "acme/broken="+broken+",engine=vllm"))
	mine, poor := newCustomer(t, u, "5"), newCustomer(t, u, "")
	mine.model = "demo/sim-large"
	for _, api := range p.apis {
		t.Run(api, func(t *testing.T) {
			t.Parallel() // they wait for the engine most of the time
			ask := newSDKAsk(mine)
			ask.PoorKey, ask.Small, ask.Broken = poor.secret, "acme/small", "acme/broken"
			j := newSDKJudge(t, mine, api)
			j.lacks = p.lacks
			if p.words != (sdkWords{}) {
				j.words = p.words
			}
			ask.Leave = j.wire.url
			j.saw = p.run(t, api, ask)
			wanted := j.scenarios()
			for name := range j.saw {
				if !slices.Contains(wanted, name) {
					t.Errorf("nobody judges %q", name)
				}
			}
			for _, name := range wanted {
				j.judge(t, name)
			}
		})
	}
}
