package e2e

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace/internal/ids"
)

// sdkScenarios judges each scenario.
var sdkScenarios = map[string]func(*testing.T, *sdkJudge, sdkSaw){
	"whole":             sdkWhole,
	"stream":            sdkStreamed("whole"),
	"length":            sdkLength,
	"length stream":     sdkStreamed("length"),
	"stop":              sdkStop,
	"stop stream":       sdkStreamed("stop"),
	"think":             sdkThink,
	"think stream":      sdkStreamed("think"),
	"sealed":            sdkSealed,
	"tools":             sdkTools,
	"tools stream":      sdkToolsStreamed("tools"),
	"previous":          sdkTools,
	"previous stream":   sdkToolsStreamed("previous"),
	"forced":            sdkForced,
	"forced stream":     sdkStreamed("forced"),
	"structured":        sdkStructured,
	"structured stream": sdkStructured,
	"image":             sdkImage,
	"image stream":      sdkStreamed("image"),
	"errors":            sdkErrors,
	"broken":            sdkBroken,
	"leave":             sdkLeave,
	"models":            sdkModels,
	"count":             sdkCount,
	"bearer":            func(t *testing.T, j *sdkJudge, saw sdkSaw) { j.answered(t, saw.sdkAnswer, j.words.length) },
	"kept":              sdkKept,
	"background":        sdkBackground,
	"cancelled":         sdkCancelled,
}

func sdkWhole(t *testing.T, j *sdkJudge, saw sdkSaw) {
	j.answered(t, saw.sdkAnswer, j.words.done)
	if saw.Text == "" || len(saw.Calls) > 0 || saw.Reasoning != "" && !j.real {
		t.Errorf("%+v", saw.sdkAnswer)
	}
}

// sdkStreamed judges the stream of what another scenario saw whole.
func sdkStreamed(whole string) func(*testing.T, *sdkJudge, sdkSaw) {
	return func(t *testing.T, j *sdkJudge, saw sdkSaw) {
		want := j.saw[whole].sdkAnswer
		j.answered(t, saw.sdkAnswer, want.Finish)
		j.alike(t, want, saw.sdkAnswer)
	}
}

func sdkLength(t *testing.T, j *sdkJudge, saw sdkSaw) {
	j.answered(t, saw.sdkAnswer, j.words.length)
	if saw.Usage.Completion != 20 || saw.Text == "" {
		t.Errorf("%+v", saw.sdkAnswer)
	}
}

func sdkStop(t *testing.T, j *sdkJudge, saw sdkSaw) {
	j.answered(t, saw.sdkAnswer, j.words.stop)
	if !strings.HasSuffix(saw.Text, "has read your ") {
		t.Errorf("%q", saw.Text)
	}
}

func sdkThink(t *testing.T, j *sdkJudge, saw sdkSaw) {
	j.answered(t, saw.sdkAnswer, j.words.done)
	if saw.Text == "" || saw.Reasoning == "" || saw.Usage.Reasoning == 0 {
		t.Errorf("%+v", saw.sdkAnswer)
	}
}

// sdkSealed judges a turn whose reasoning the client keeps, and gives back in the next.
func sdkSealed(t *testing.T, j *sdkJudge, saw sdkSaw) {
	if len(saw.Turns) != 2 || saw.Sealed == nil || !*saw.Sealed {
		t.Fatalf("%+v", saw)
	}
	for _, turn := range saw.Turns {
		j.answered(t, turn, j.words.done)
	}
}

const bothTools = `get_time {"zone":"simulated"}, get_weather {"city":"simulated","days":2}`

// sdkTools judges a loop: two calls, then an answer to their results.
func sdkTools(t *testing.T, j *sdkJudge, saw sdkSaw) {
	if len(saw.Turns) != 2 {
		t.Fatalf("%+v", saw)
	}
	j.answered(t, saw.Turns[0], j.words.calls)
	j.answered(t, saw.Turns[1], j.words.done)
	if first := calls(t, saw.Turns[0]); first != bothTools || saw.Turns[0].Text != "" {
		t.Errorf("%s; %+v", first, saw.Turns[0])
	}
	if second := saw.Turns[1]; len(second.Calls) > 0 || !strings.Contains(second.Text, "has received the tool's result") {
		t.Errorf("%+v", second)
	}
	if saw.Sealed != nil && (!*saw.Sealed || saw.Turns[0].Reasoning == "") {
		t.Error("the reasoning before a call is not signed")
	}
}

func sdkToolsStreamed(whole string) func(*testing.T, *sdkJudge, sdkSaw) {
	return func(t *testing.T, j *sdkJudge, saw sdkSaw) {
		sdkTools(t, j, saw)
		for i, want := range j.saw[whole].Turns {
			j.alike(t, want, saw.Turns[i])
		}
	}
}

func sdkForced(t *testing.T, j *sdkJudge, saw sdkSaw) {
	j.answered(t, saw.sdkAnswer, j.words.calls)
	if len(saw.Calls) != 1 || !strings.Contains(bothTools, calls(t, saw.sdkAnswer)) {
		t.Errorf("%+v", saw.sdkAnswer)
	}
}

func sdkStructured(t *testing.T, j *sdkJudge, saw sdkSaw) {
	j.answered(t, saw.sdkAnswer, j.words.done)
	want, got := map[string]any{"city": "simulated", "days": 1.0}, map[string]any{}
	if err := json.Unmarshal(saw.Parsed, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s, %v", saw.Parsed, err)
	}
	if saw.Scenario == "structured stream" {
		whole := j.saw["structured"].sdkAnswer
		whole.Text, saw.Text = string(saw.Parsed), string(saw.Parsed) // a client may have put the text together from what it parsed
		j.alike(t, whole, saw.sdkAnswer)
	}
}

func sdkImage(t *testing.T, j *sdkJudge, saw sdkSaw) {
	j.answered(t, saw.sdkAnswer, j.words.length)
	if text := j.saw["whole"].Usage.Prompt; saw.Usage.Prompt <= text+100 {
		t.Errorf("%d tokens with the image, %d without", saw.Usage.Prompt, text)
	}
}

// sdkErrors judges refusals. Deterministic ones are not tried again.
func sdkErrors(t *testing.T, j *sdkJudge, saw sdkSaw) {
	want := maps.Clone(sdkAPIs[j.api].failures)
	maps.DeleteFunc(want, func(what string, _ sdkFailure) bool { return !j.wants(what) })
	for what, w := range want {
		got := saw.Failures[what]
		if got.Class == "" || got.Status != w.Status || got.Code != w.Code || got.Type != w.Type || got.Param != w.Param || got.Tries != 1 || !strings.Contains(got.Message, w.Message) {
			t.Errorf("%s: %+v", what, got)
		}
		if _, err := ids.Parse(ids.Request, got.Request); err != nil {
			t.Errorf("%s: request %q: %v", what, got.Request, err)
		}
	}
	if len(saw.Failures) > len(want) {
		t.Errorf("%d failures", len(saw.Failures))
	}
}

// sdkBroken judges an engine's error in mid-stream: the client must raise it, in Millrace's words.
func sdkBroken(t *testing.T, _ *sdkJudge, saw sdkSaw) {
	got := saw.Failures["stream"]
	if got.Class == "" || !strings.Contains(got.Message, "engine failed") || strings.Contains(got.Message, "EngineCore") {
		t.Errorf("%+v", saw)
	}
}

// sdkLeave judges an answer that the client left: what was written to it is billed.
func sdkLeave(t *testing.T, j *sdkJudge, saw sdkSaw) {
	id, err := ids.Parse(ids.Request, saw.Request)
	if err != nil {
		t.Fatalf("request %q: %v", saw.Request, err)
	}
	bill := j.c.bill(t, id)
	j.wire.drained(t)
	written, billed := j.wire.pieces.Load(), bill.Tokens.Output+bill.Tokens.Reasoning
	if bill.Ending != "client_left" || billed < written || billed > written+j.slack || saw.Pieces > written || saw.Pieces == 0 {
		t.Errorf("%d tokens are billed (%s), %d were written to the client, it has read %d", billed, bill.Ending, written, saw.Pieces)
	}
	t.Logf("read %d, written %d, billed %d", saw.Pieces, written, billed)
}

func sdkModels(t *testing.T, j *sdkJudge, saw sdkSaw) {
	if !slices.Contains(saw.Models, j.c.model) || saw.Model != j.c.model {
		t.Errorf("%+v", saw)
	}
}

// sdkCount judges a prompt's tokens, counted beforehand.
func sdkCount(t *testing.T, j *sdkJudge, saw sdkSaw) {
	j.answered(t, saw.sdkAnswer, j.words.calls)
	if saw.Counted != saw.Usage.Prompt {
		t.Errorf("counted %d, used %d", saw.Counted, saw.Usage.Prompt)
	}
}

func sdkKept(t *testing.T, _ *sdkJudge, saw sdkSaw) {
	if !saw.Same || !saw.Gone || len(saw.Items) != 1 || !strings.Contains(saw.Items[0], "story of a mill") {
		t.Errorf("%+v", saw)
	}
}

func sdkBackground(t *testing.T, j *sdkJudge, saw sdkSaw) {
	whole := j.saw["whole"]
	if saw.First != "queued" && saw.First != "in_progress" || saw.Text != whole.Text || saw.Finish != whole.Finish || saw.Usage.Completion != whole.Usage.Completion {
		t.Errorf("%+v", saw)
	}
}

func sdkCancelled(t *testing.T, _ *sdkJudge, saw sdkSaw) {
	if saw.Finish != "cancelled" {
		t.Errorf("%+v", saw)
	}
}
