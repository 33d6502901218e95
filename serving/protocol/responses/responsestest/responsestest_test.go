package responsestest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/serving/protocol/responses/responsestest"
)

// The reader finds every fault that is put into a good stream.
func TestFaultsAreFound(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "testdata", "everything-in-one-delta.sse"))
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	if _, err := responsestest.Check(text); err != nil {
		t.Fatal(err)
	}
	events := strings.SplitAfter(good, "\n\n")
	without := func(kind string) string {
		var kept []string
		for _, e := range events {
			if !strings.HasPrefix(e, "event: "+kind+"\n") {
				kept = append(kept, e)
			}
		}
		return strings.Join(kept, "")
	}
	for name, bad := range map[string]string{
		"a gap in the numbers":             strings.Replace(good, `"sequence_number":4`, `"sequence_number":5`, 1),
		"an event line of another type":    strings.Replace(good, "event: response.output_text.delta", "event: response.refusal.delta", 1),
		"no end":                           without("response.completed"),
		"an item that is never done":       without("response.output_item.done"),
		"an item that never begins":        without("response.output_item.added"),
		"a part that never begins":         without("response.content_part.added"),
		"a text that is never done":        without("response.output_text.done"),
		"another output index":             strings.Replace(good, `"output_index":1,"item_id"`, `"output_index":2,"item_id"`, 1),
		"another item id":                  strings.Replace(good, `"item_id":"msg_`, `"item_id":"msg_x`, 1),
		"a delta that is not in the text":  strings.Replace(good, `"delta":"ans"`, `"delta":"bns"`, 1),
		"an item that says something else": strings.Replace(good, `"type":"output_text","text":"answer","annotations":[],"logprobs":[]}]}}`, `"type":"output_text","text":"other","annotations":[],"logprobs":[]}]}}`, 1),
		"an unknown event":                 strings.ReplaceAll(good, "response.output_text.done", "response.output_text.finished"),
		"an unknown member of an item":     strings.Replace(good, `"summary":[]`, `"summary":[],"zz":1`, 1),
		"a member of the response missing": strings.ReplaceAll(good, `"truncation":"disabled",`, ``),
		"null where there is a value":      strings.ReplaceAll(good, `"verbosity":"medium"`, `"verbosity":null`),
		"usage that does not add up":       strings.Replace(good, `"total_tokens":107`, `"total_tokens":108`, 1),
		"an end without usage":             strings.Replace(good, `"usage":{`, `"usage":null,"x":{`, 1),
		"completed without a time":         strings.Replace(good, `"completed_at":1700000009`, `"completed_at":null`, 1),
		"something after the end":          good + strings.Replace(events[0], `"sequence_number":0`, `"sequence_number":21`, 1),
		"an end mark":                      good + "data: [DONE]\n\n",
		"half an event":                    strings.TrimSuffix(good, "\n"),
	} {
		if bad == good {
			t.Errorf("%s: nothing was changed", name)
		} else if _, err := responsestest.Check([]byte(bad)); err == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
