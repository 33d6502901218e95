package messagestest

import (
	"strings"
	"testing"
)

const start = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,"service_tier":"standard"}}}

`

const good = start + `event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

`

// The reader takes what is right and nothing that breaks a rule.
func TestEveryRuleIsHeldTo(t *testing.T) {
	m, err := Check([]byte(good))
	if err != nil || string(m.Content[1].Input) != `{"a":1}` || *m.StopReason != "tool_use" {
		t.Fatalf("%v %+v", err, m)
	}
	drop := func(name string, n int) string { // without the nth event of a name
		events := strings.SplitAfter(good, "\n\n")
		var out strings.Builder
		for _, e := range events {
			if strings.HasPrefix(e, "event: "+name+"\n") {
				if n--; n == 0 {
					continue
				}
			}
			out.WriteString(e)
		}
		return out.String()
	}
	swap := func(old, now string) string { return strings.Replace(good, old, now, 1) }
	for name, stream := range map[string]string{
		"no message_start": drop("message_start", 1), "no block start": drop("content_block_start", 2), "no block stop": drop("content_block_stop", 1),
		"no signature": drop("content_block_delta", 1), "no ping": drop("ping", 1), "no message_delta": drop("message_delta", 1), "no message_stop": drop("message_stop", 1),
		"a gap": strings.ReplaceAll(good, `"index":1`, `"index":2`), "another name": swap("event: message_stop", "event: message_end"),
		"no event line": swap("event: message_stop\n", ""), "something after the end": good + "event: ping\ndata: {\"type\":\"ping\"}\n\n",
		"two starts": start + good, "no usage": swap(`,"usage":{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}`, ``),
		"an unknown reason": swap("\"tool_use\",\"stop_seq", "\"tool\",\"stop_seq"), "a stop sequence too much": swap(`"stop_sequence":null},"usage"`, `"stop_sequence":"x"},"usage"`),
		"an empty delta": swap(`{\"a\":1`, ``), "no object": swap(`{\"a\":1`, `x`), "a wrong delta": swap("input_json_delta", "text_delta"), "a leak": swap(`"type":"message_stop"`, `"type":"message_stop","x":1`),
		"no input tokens": swap(`"input_tokens":1`, `"input_tokens":0`), "CRLF": strings.ReplaceAll(good, "\n", "\r\n"), "no last empty line": strings.TrimSuffix(good, "\n"),
		"an error without its shape": start + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"oops\",\"message\":\"m\"},\"request_id\":\"r\"}\n\n",
	} {
		if _, err := Check([]byte(stream)); err == nil {
			t.Errorf("%s passed", name)
		}
	}
}

func TestPartial(t *testing.T) {
	for text, want := range map[string]string{`{"a":1,"b":"x`: `{"a":1}`, `{"a":[1,{"b":2`: `{"a":[1,{"b":2}]}`, `{"a":12`: `{"a":12}`, `{"a":1.`: `{}`, `{"a":tr`: `{}`, `{`: `{}`, `{"a":"}"}`: `{"a":"}"}`} {
		if got, err := Partial(text); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	if got, err := Partial("[1]"); err == nil {
		t.Errorf("a list is %s", got)
	}
}
