package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"millrace/internal/ids"
)

// sdkWords is how a client says that an answer ended.
type sdkWords struct{ done, length, stop, calls string }

var threeAPIs = []string{"chat", "responses", "messages"}

// sdkAPIs is what the APIs differ in.
var sdkAPIs = map[string]struct {
	words    sdkWords
	only     []string // scenarios that others do not have
	failures map[string]sdkFailure
}{
	"chat": {sdkWords{"stop", "length", "stop", "tool_calls"}, []string{"stop", "stop stream", "models"}, openaiFailures("messages")},
	"responses": {sdkWords{"completed", "incomplete: max_output_tokens", "", "completed"},
		[]string{"sealed", "previous", "previous stream", "kept", "background", "cancelled"}, openaiFailures("input")},
	"messages": {sdkWords{"end_turn", "max_tokens", "stop_sequence: question", "tool_use"},
		[]string{"stop", "stop stream", "models", "count", "bearer"}, anthropicFailures},
}

func openaiFailures(prompt string) map[string]sdkFailure {
	const invalid = "invalid_request_error"
	long := sdkFailure{Status: http.StatusBadRequest, Type: invalid, Code: "context_length_exceeded", Param: prompt, Message: "4096"}
	all := map[string]sdkFailure{
		"bad_key":         {Status: http.StatusUnauthorized, Type: invalid, Code: "invalid_api_key", Message: "Incorrect API key"},
		"no_model":        {Status: http.StatusNotFound, Type: invalid, Code: "model_not_found", Param: "model", Message: "acme/none"},
		"no_credit":       {Status: http.StatusPaymentRequired, Type: "insufficient_quota", Code: "insufficient_quota", Message: "credit is used up"},
		"bad_value":       {Status: http.StatusBadRequest, Type: invalid, Param: "temperature", Message: "between 0 and 2"},
		"overflow":        long,
		"overflow_stream": long,
	}
	if prompt == "input" {
		all["no_previous"] = sdkFailure{Status: http.StatusNotFound, Type: invalid, Code: "previous_response_not_found", Param: "previous_response_id", Message: "resp_none"}
	}
	return all
}

var anthropicFailures = map[string]sdkFailure{
	"bad_key":         {Status: http.StatusUnauthorized, Type: "authentication_error", Message: "Incorrect API key"},
	"no_model":        {Status: http.StatusNotFound, Type: "not_found_error", Message: "acme/none"},
	"no_credit":       {Status: http.StatusPaymentRequired, Type: "billing_error", Message: "credit is used up"},
	"bad_value":       {Status: http.StatusBadRequest, Type: "invalid_request_error", Message: "temperature"},
	"overflow":        {Status: http.StatusBadRequest, Type: "invalid_request_error", Message: "prompt is too long: "},
	"overflow_stream": {Status: http.StatusBadRequest, Type: "invalid_request_error", Message: "prompt is too long: "},
}

// sdkJudge compares what a client saw with what Millrace must do, and has done by its books.
type sdkJudge struct {
	c     *customer
	name  string // of the API and the way to it: "compatible chat"
	api   string
	words sdkWords
	lacks []string
	wire  *wire // the way of the answer that is left
	slack int64 // tokens that an engine may count and that show in no piece
	real  bool  // a real engine says what it likes
	saw   map[string]sdkSaw
}

func newSDKJudge(t *testing.T, c *customer, api string) *sdkJudge {
	t.Helper()
	kind := api[strings.LastIndex(api, " ")+1:]
	return &sdkJudge{c: c, name: api, api: kind, words: sdkAPIs[kind].words, wire: listenIn(t, c.url)}
}

// scenarios are those that the client must have played.
func (j *sdkJudge) scenarios() []string {
	if j.api == "platform" {
		return slices.Sorted(maps.Keys(sdkFacts))
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(sdkScenarios)), func(name string) bool { return !j.wants(name) })
}

// wants tells whether the API has a scenario, and the client a way to play it.
func (j *sdkJudge) wants(scenario string) bool {
	if slices.Contains(j.lacks, j.name+" "+scenario) {
		return false
	}
	if slices.Contains(sdkAPIs[j.api].only, scenario) {
		return true
	}
	for _, other := range sdkAPIs {
		if slices.Contains(other.only, scenario) {
			return false
		}
	}
	return true
}

func (j *sdkJudge) judge(t *testing.T, scenario string) {
	t.Run(scenario, func(t *testing.T) {
		saw, ok := j.saw[scenario]
		if !ok || saw.Unexpected != "" {
			t.Fatalf("not played, or failed: %s", saw.Unexpected)
		}
		if want, ok := sdkFacts[scenario]; ok {
			sameFacts(t, saw.Facts, want)
			return
		}
		sdkScenarios[scenario](t, j, saw)
	})
}

// answered checks that an answer ended so, and was billed as the client was told.
func (j *sdkJudge) answered(t *testing.T, saw sdkAnswer, finish string) {
	t.Helper()
	if saw.Finish != finish && !j.real || saw.Finish == "" {
		t.Errorf("it ended by %q, not %q: %+v", saw.Finish, finish, saw)
	}
	id, err := ids.Parse(ids.Request, saw.Request)
	if err != nil {
		t.Fatalf("request %q: %v", saw.Request, err)
	}
	b, u := j.c.bill(t, id), saw.Usage
	prompt, generated := b.Tokens.Input+b.Tokens.Cached+b.Tokens.CacheWrite+b.Tokens.Image, b.Tokens.Output+b.Tokens.Reasoning
	if prompt != u.Prompt || b.Tokens.Cached != u.Cached || generated != u.Completion || b.Tokens.Reasoning != u.Reasoning || b.Ending != "complete" || generated == 0 {
		t.Errorf("billed %+v (%s), the client was told %+v", b.Tokens, b.Ending, u)
	}
}

// alike checks that an answer, put together by the client from its pieces, is the whole one.
func (j *sdkJudge) alike(t *testing.T, whole, streamed sdkAnswer) {
	t.Helper()
	if streamed.Pieces == 0 || streamed.Pieces > streamed.Usage.Completion+sdkMarks {
		t.Errorf("%d pieces of %d tokens", streamed.Pieces, streamed.Usage.Completion)
	}
	if j.real {
		return
	}
	w, s := whole, streamed
	if w.Text != s.Text || w.Reasoning != s.Reasoning || w.Finish != s.Finish || calls(t, w) != calls(t, s) || w.Usage.Prompt != s.Usage.Prompt ||
		w.Usage.Completion != s.Usage.Completion || w.Usage.Reasoning != s.Usage.Reasoning {
		t.Errorf("whole    %+v\nstreamed %+v", w, s)
	}
}

// sdkMarks is how many pieces may carry no token: a signature, the end of arguments.
const sdkMarks = 4

// calls puts calls into words, whichever way the arguments came, without the ids, which must be there and differ.
func calls(t *testing.T, saw sdkAnswer) string {
	t.Helper()
	var said []string
	seen := map[string]bool{}
	for _, c := range saw.Calls {
		if c.ID == "" || seen[c.ID] {
			t.Errorf("ids of calls: %+v", saw.Calls)
		}
		seen[c.ID] = true
		raw := c.Input
		if len(raw) == 0 {
			raw = json.RawMessage(c.Arguments)
		}
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Errorf("arguments %q: %v", raw, err)
		}
		canonical, err := json.Marshal(v) // sorted
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, c.Name+" "+string(canonical))
	}
	slices.Sort(said)
	return strings.Join(said, ", ")
}
