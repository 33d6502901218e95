package batch_test

import (
	"encoding/json"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/serving/batch"
	"millrace/serving/gate/gatetest"
)

// What is wrong with an input file is told by line; then nothing of it runs.
func TestWhatIsWrongWithAFile(t *testing.T) {
	w := newWorld(t)
	e := gatetest.NewEngine(t, gatetest.Stream(said))
	w.gateway(gatetest.New(t, direct, e), nil)
	good := request("a", "")
	change := func(old, next string) string { return good + "\n" + strings.Replace(request("b", ""), old, next, 1) }
	for name, tt := range map[string]struct {
		text, code, param string
		line              int32 // 0 = none
	}{
		"no JSON":            {good + "\nhello", "invalid_json_line", "", 2},
		"half a line":        {good + "\n" + good[:40], "invalid_json_line", "", 2},
		"an array":           {"[]", "invalid_json_line", "", 1},
		"no UTF-8":           {change("hello", "h\xff"), "invalid_json_line", "", 2},
		"UTF-16":             {"\xff\xfe{\x00}\x00", "invalid_json_line", "", 1},
		"twice the same":     {good + "\n" + good, "duplicate_custom_id", "custom_id", 2},
		"the same, escaped":  {change(`"b"`, `"\u0061"`), "duplicate_custom_id", "custom_id", 2},
		"no custom_id":       {change(`"custom_id":"b",`, ``), "missing_required_parameter", "custom_id", 2},
		"a numbered one":     {change(`"b"`, `7`), "invalid_request", "custom_id", 2},
		"an empty one":       {change(`"b"`, `""`), "invalid_request", "custom_id", 2},
		"a long one":         {change(`"b"`, `"`+strings.Repeat("b", 600)+`"`), "invalid_request", "custom_id", 2},
		"GET":                {change("POST", "GET"), "invalid_method", "method", 2},
		"another url":        {change("/v1/chat/completions", "/v1/embeddings"), "mismatched_url", "url", 2},
		"no body":            {change(`"body":{`, `"body":null,"x":{`), "invalid_request", "x", 2},
		"a body of text":     {`{"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":"x"}`, "invalid_request", "body", 1},
		"a member twice":     {change(`"method"`, `"custom_id":"c","method"`), "invalid_request", "custom_id", 2},
		"streamed":           {good + "\n" + request("b", `,"stream":true`), "invalid_request", "body.stream", 2},
		"first class":        {good + "\n" + request("b", `,"service_tier":"priority"`), "invalid_request", "body.service_tier", 2},
		"wrong ones only":    {request("a", `,"temperature":9`), "invalid_request", "body.temperature", 1},
		"no model":           {change(`"model":"acme/test",`, ``), "invalid_request", "body.model", 2},
		"an unknown model":   {strings.ReplaceAll(good, "acme/test", "acme/none"), "model_not_found", "body.model", 1},
		"two models":         {change("acme/test", "acme/other"), "mismatched_model", "body.model", 2},
		"blank lines only":   {"\n \r\n\t\n", "empty_batch", "", 0},
		"a mark only":        {"\xef\xbb\xbf", "empty_batch", "", 0},
		"a huge line":        {good + "\n" + strings.Repeat(" ", batch.MaxLineBytes) + "{}\n" + good, "line_too_long", "", 2},
		"an endless line":    {strings.Repeat("x", 2*batch.MaxLineBytes), "line_too_long", "", 1},
		"the line's own end": {"\n\n" + good + "\n\nx", "invalid_json_line", "", 5},
	} {
		b := w.status(w.create(tt.text).ID, batch.Failed)
		var list struct {
			Object string
			Data   []batch.Problem
		}
		if err := json.Unmarshal([]byte(*b.Errors), &list); err != nil {
			t.Fatal(err)
		}
		p := list.Data[0]
		param, line := "", int32(0)
		if p.Param != nil {
			param = *p.Param
		}
		if p.Line != nil {
			line = *p.Line
		}
		if list.Object != "list" || len(list.Data) != 1 || p.Code != tt.code || param != tt.param || line != tt.line || p.Message == "" || b.FailedAt == nil || b.Total != 0 {
			t.Errorf("%s: %s", name, *b.Errors)
		}
	}
	if e.Requests() != 0 {
		t.Errorf("%d requests", e.Requests())
	}
}

func TestOddFilesThatAreRight(t *testing.T) {
	w := newWorld(t)
	w.gateway(gatetest.New(t, direct, gatetest.NewEngine(t, gatetest.Stream(said))), nil)
	pad := strings.Repeat(" ", batch.ChunkBytes-100) // the next line lies in two chunks
	for name, text := range map[string]string{
		"no end":     requests(2) + request("last", ""),
		"CRLF":       strings.ReplaceAll(requests(3), "\n", "\r\n"),
		"a mark":     "\xef\xbb\xbf" + requests(3),
		"blanks":     "\n" + requests(2) + "\r\n\n" + request("x", "") + "\n\n",
		"two chunks": request("a", "") + pad + "\n" + request("b", "") + "\n" + request("c", ""),
		"a long one": request("a", "") + strings.Repeat(" ", batch.MaxLineBytes-len(request("a", ""))) + "\n" + request("b", "") + "\n" + request("c", ""),
	} {
		b := w.create(text)
		b = w.until(b.ID, "ended", func(b batch.Batch) bool { return b.Status == batch.Completed || b.Status == batch.Failed })
		if b.Status != batch.Completed || b.Completed != 3 || len(w.answers(b.OutputFileID)) != 3 {
			t.Errorf("%s: %+v %v", name, b, b.Errors)
		}
	}
}

func TestTooManyLines(t *testing.T) {
	w := newWorld(t)
	w.gateway(gatetest.New(t, direct, gatetest.NewEngine(t, gatetest.Stream(said))), nil)
	b := w.status(w.create(requests(batch.MaxLines+1)).ID, batch.Failed)
	if !strings.Contains(*b.Errors, "too_many_tasks") {
		t.Error(*b.Errors)
	}
}

func TestBatchesThatCannotBe(t *testing.T) {
	w := newWorld(t)
	f := w.upload(requests(1)).ID
	out, err := w.store.Begin(t.Context(), w.owner, batch.Output, "out")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	output, err := out.Finish(batch.MaxExpiry)
	if err != nil {
		t.Fatal(err)
	}
	right := batch.NewBatch{Input: f, Endpoint: "/v1/chat/completions", Window: "24h"}
	for name, tt := range map[string]struct {
		change func(*batch.NewBatch)
		param  string
	}{
		"embeddings":     {func(n *batch.NewBatch) { n.Endpoint = "/v1/embeddings" }, "endpoint"},
		"an hour":        {func(n *batch.NewBatch) { n.Window = "1h" }, "completion_window"},
		"an output file": {func(n *batch.NewBatch) { n.Input = output.ID }, "input_file_id"},
		"a long key":     {func(n *batch.NewBatch) { n.Metadata = map[string]string{strings.Repeat("k", 65): ""} }, "metadata"},
		"a long value":   {func(n *batch.NewBatch) { n.Metadata = map[string]string{"k": strings.Repeat("v", 513)} }, "metadata"},
		"a short life":   {func(n *batch.NewBatch) { n.OutputExpiry = 1 }, "output_expires_after.seconds"},
	} {
		n := right
		tt.change(&n)
		if _, err := w.store.Create(t.Context(), w.owner, n); fault.Of(err).Param != tt.param || fault.Of(err).Kind != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range batch.MaxOpen {
		if _, err := w.store.Create(t.Context(), w.owner, right); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.store.Create(t.Context(), w.owner, right); fault.Of(err).Code != "batch_limit_exceeded" {
		t.Errorf("one too many: %v", err)
	}
}
