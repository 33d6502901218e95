package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
)

// The real thing on a CPU: vLLM 0.32 with a tiny model of random weights, started by the driver's command line and driven as
// an agent and the gateway drive it. It runs with MILLRACE_SLOW=1; the first time about 6 GB are fetched.
const (
	realScripts = "../../test/engines/vllm"
	realSetup   = 30 * time.Minute
	realStart   = 10 * time.Minute // a minute when nothing else runs
	realBlock   = 32               // tokens; what it can do on a CPU
)

// realVLLM gives the folder with the engine and its models.
func realVLLM(t *testing.T) string {
	t.Helper()
	if os.Getenv("MILLRACE_SLOW") == "" {
		t.Skip("slow: set MILLRACE_SLOW=1")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "millrace", "test-vllm")
	ctx, cancel := context.WithTimeout(t.Context(), realSetup)
	defer cancel()
	if out, err := exec.CommandContext(ctx, filepath.Join(realScripts, "setup.sh"), dir).CombinedOutput(); err != nil {
		t.Fatalf("setup of vLLM: %v\n%s", err, out)
	}
	return dir
}

// realSpec is what a CPU needs beside what a recipe says.
func realSpec(dir, model string) engine.Spec {
	return engine.Spec{
		Executable: filepath.Join(dir, "env", "bin", "vllm"), Model: "tiny", ModelPath: filepath.Join(dir, model), DataDir: dir,
		Context: 4096, Slots: 16, Queue: 64, Drain: 5,
		Extra: []string{"--enforce-eager", "--dtype", "bfloat16", "--block-size", fmt.Sprint(realBlock)},
		Env: map[string]string{"VLLM_TARGET_DEVICE": "cpu", "VLLM_PLUGINS": "", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
			"OMP_NUM_THREADS": "1", "KMP_BLOCKTIME": "0", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "UCX_TLS": "tcp,shm,self"},
	}
}

// whenReady waits for the first token.
func whenReady(t *testing.T, d engine.Driver, base string) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), realStart)
	defer cancel()
	for {
		err := d.Ready(ctx, http.DefaultClient, base, "tiny")
		if err == nil {
			t.Logf("ready after %.0f s", time.Since(began).Seconds())
			return
		}
		if ctx.Err() != nil || gone(base) {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

func TestRealVLLM(t *testing.T) {
	dir := realVLLM(t)
	d := driver(t, engine.VLLM)
	held := newBlocks(t)
	endpoint := held.listen(t)
	spec := realSpec(dir, "tiny")
	if _, err := fmt.Sscanf(endpoint, "tcp://127.0.0.1:%d", &spec.KVPort); err != nil {
		t.Fatal(err)
	}
	spec.ReplayPort = freePort(t)
	spec.Env["VLLM_SERVER_DEV_MODE"] = "1"
	base := launch(t, d, spec)
	whenReady(t, d, base)

	chat := func(text, more string) string {
		return fmt.Sprintf(`{"model":"tiny","messages":[{"role":"user","content":%q}],"temperature":0%s}`, text, more)
	}
	prompt := strings.Repeat("The river flows past the old mill. ", 30)
	body := func(text, more string, p engine.ChatParams) []byte {
		p.Model = "tiny"
		out, err := d.PrepareChat(nil, []byte(chat(text, more)), p)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// Tokens are those that it counts; what its events say is what it finds cached; another's salt finds nothing.
	mine := engine.ChatParams{Salt: "mine"}
	ids, err := d.Tokens(t.Context(), http.DefaultClient, base, body(prompt, "", mine))
	if err != nil {
		t.Fatal(err)
	}
	first := converse(t, d, base, body(prompt, `,"max_tokens":8`, mine), -1)
	hashes := kvevent.ChainHashes("mine", ids[:len(ids)-1], realBlock)
	eventually(t, "its events tell the prompt's blocks", func() bool { return held.all(0, hashes) })
	again := converse(t, d, base, body(prompt, `,"max_tokens":8`, mine), -1)
	theirs := converse(t, d, base, body(prompt, `,"max_tokens":8`, engine.ChatParams{Salt: "theirs"}), -1)
	cached := int64(len(hashes) * realBlock)
	if n := int64(len(ids)); first.Vector.Prompt() != n || first.Vector.Generated() != 8 || n-again.Vector[0] != cached || theirs.Vector[0] != n {
		t.Errorf("%d tokens, %d of them in blocks; first %v, again %v, another's %v", n, cached, first.Vector, again.Vector, theirs.Vector)
	}
	t.Logf("prompt %d tokens, cached %d", len(ids), cached)
	if l, err := d.Load(t.Context(), http.DefaultClient, base); err != nil || l.PrefixHits < cached || l.PrefixQueries < 3*int64(len(ids)) {
		t.Errorf("%+v, %v", l, err)
	}
	quiet := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			l, err := d.Load(t.Context(), http.DefaultClient, base)
			return err == nil && l.Running+l.Waiting == 0
		})
	}
	// A client that leaves, and a request that is cancelled by its id, end at once.
	left := converse(t, d, base, body("Go on.", `,"max_tokens":3000,"ignore_eos":true`, mine), 6)
	if g := left.Vector.Generated(); g < 5 || g > 6 {
		t.Errorf("left after %v", left.Vector)
	}
	quiet("nothing runs for a client that left")
	resp := send(t, base, body("Go on.", `,"max_tokens":3000,"ignore_eos":true`, engine.ChatParams{Salt: "mine", RequestID: "cafe01"}))
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 2000)); err != nil {
		t.Fatal(err)
	}
	if err := d.Cancel(t.Context(), http.DefaultClient, base, "cafe01"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(resp.Body)
	if n := bytes.Count(rest, []byte("data:")); err != nil || n > 1000 {
		t.Errorf("%v; %d chunks after it was cancelled", err, n)
	}
	t.Logf("a cancelled answer ends with …%s", rest[max(0, len(rest)-400):])
	quiet("nothing runs that was cancelled")
	// Prefixes are forgotten when told, and its events say so.
	if err := d.ResetPrefix(t.Context(), http.DefaultClient, base); err != nil {
		t.Error(err)
	}
	if once := converse(t, d, base, body(prompt, `,"max_tokens":8`, mine), -1); once.Vector[0] != int64(len(ids)) {
		t.Errorf("after the reset: %v", once.Vector)
	}
}

func send(t *testing.T, base string, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+engine.ChatPath, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// whole asks for an answer that is not streamed.
func whole(t *testing.T, base string, body []byte) (text string, answer []byte) {
	t.Helper()
	resp := send(t, base, body)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", resp.Status, err, answer)
	}
	var got struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Choices) != 1 {
		t.Fatalf("%v: %s", err, answer)
	}
	return got.Choices[0].Message.Content, answer
}

// Two real engines, one for prefill and one for decode, hand a prompt's cache over by NIXL; what comes out is what one engine
// alone says, word for word.
func TestRealVLLMPrefillAndDecode(t *testing.T) {
	dir := realVLLM(t)
	d := driver(t, engine.VLLM)
	how := engine.Transfer{Backend: "nixl", Mode: "pull", Buffer: "cpu"}
	hand, err := engine.HandoffOf(d, how)
	if err != nil {
		t.Fatal(err)
	}
	side := func(role string) (engine.Spec, string) {
		s := realSpec(dir, "sharp")
		transfer := how
		transfer.Port = freePort(t)
		s.Role, s.Transfer = role, &transfer
		return s, launch(t, d, s)
	}
	spec, prefill := side(engine.Prefill)
	_, decode := side(engine.Decode)
	whenReady(t, d, prefill)
	whenReady(t, d, decode)
	for i, words := range []string{"The river flows past the old mill. ", "No miller counts his sacks by night; ", "Each wheel turns once more, and then "} {
		prompt := strings.Repeat(words, 60)
		body, err := d.PrepareChat(nil, fmt.Appendf(nil, `{"model":"tiny","messages":[{"role":"user","content":%q}],"temperature":0,"max_tokens":48,"ignore_eos":true}`, prompt),
			engine.ChatParams{Model: "tiny", Salt: "org"})
		if err != nil {
			t.Fatal(err)
		}
		ids, err := hand.Mint(strings.NewReader(strings.Repeat(fmt.Sprint(i), 64)), engine.PeerOf(&spec))
		if err != nil {
			t.Fatal(err)
		}
		over := engine.Handover{IDs: ids, From: engine.PeerOf(&spec)}
		began := time.Now()
		_, answer := whole(t, prefill, hand.Prefill(nil, body, over))
		handed, err := hand.Read(answer)
		if err != nil || handed.Params == nil {
			t.Fatalf("%+v, %v: %s", handed, err, answer)
		}
		prefilled := time.Since(began)
		before := computed(t, decode)
		text := streamed(t, decode, hand.Decode(nil, body, over, &handed))
		there := time.Since(began)
		here := computed(t, decode) - before
		alone := streamed(t, prefill, body)
		if text != alone || len(text) < 48 {
			t.Errorf("handed over:\n%q\nalone:\n%q", text, alone)
		}
		if prompt := handed.Report.Vector.Prompt(); !handed.Reported || prompt < 100 || here >= prompt/2 {
			t.Errorf("of a prompt of %d tokens the decode engine computed %d itself", prompt, here)
		}
		t.Logf("prompt %d tokens: prefill %v, whole answer %v; the decode engine computed %d of them", handed.Report.Vector.Prompt(), prefilled.Round(time.Millisecond), there.Round(time.Millisecond), here)
	}
	// A peer that is not there is an error to fail over from, not an answer without a cache.
	body, _ := d.PrepareChat(nil, []byte(`{"model":"tiny","messages":[{"role":"user","content":"`+strings.Repeat("lost ", 200)+`"}],"max_tokens":4}`), engine.ChatParams{Model: "tiny"})
	lost := engine.Handed{Params: []byte(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[0,1,2,3]],"remote_engine_id":"nobody","remote_request_id":"x","remote_host":"127.0.0.1","remote_port":1,"tp_size":1}`)}
	resp := send(t, decode, hand.Decode(nil, body, engine.Handover{IDs: engine.HandoffIDs{Request: "lost"}}, &lost))
	defer resp.Body.Close()
	said, _ := io.ReadAll(resp.Body)
	if !strings.Contains(string(said), `"error"`) {
		t.Errorf("%s: %s", resp.Status, said)
	}
	t.Logf("without its peer: %s %.300s", resp.Status, said)
}

// computed is how many prompt tokens an engine has computed itself.
func computed(t *testing.T, base string) int64 {
	t.Helper()
	resp, err := http.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "vllm:prompt_tokens_by_source_total{") && strings.Contains(line, `source="local_compute"`) {
			var n float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(strings.TrimSpace(line), ' '):], &n); err != nil {
				t.Fatal(err)
			}
			return int64(n)
		}
	}
	t.Fatalf("the metrics do not tell what was computed:\n%s", text)
	return 0
}

// streamed reads a streamed answer's words.
func streamed(t *testing.T, base string, body []byte) string {
	t.Helper()
	resp := send(t, base, body)
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", resp.Status, err, all)
	}
	var b strings.Builder
	for line := range bytes.Lines(all) {
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct{ Content string }
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal(data, &chunk); err != nil || chunk.Error != nil {
			t.Fatalf("%v: %s", err, data)
		}
		for _, c := range chunk.Choices {
			b.WriteString(c.Delta.Content)
		}
	}
	return b.String()
}

// Every command line of every role and shape is one that a real vLLM takes.
func TestRealVLLMTakesEveryFlag(t *testing.T) {
	dir := realVLLM(t)
	var lines bytes.Buffer
	n := 0
	for _, top := range topologies {
		c, err := driver(t, engine.VLLM).Command(top.spec(engine.VLLM))
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal([]any{top.name, c.Args[1:]}) // without "serve"
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
		n++
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "env", "bin", "python"), filepath.Join(realScripts, "flags.py"))
	cmd.Env = append(os.Environ(), "VLLM_TARGET_DEVICE=cpu", "VLLM_PLUGINS=", "HF_HUB_OFFLINE=1")
	cmd.Stdin = &lines
	var said bytes.Buffer
	cmd.Stdout = &said
	if err := cmd.Run(); err != nil || !strings.Contains(said.String(), fmt.Sprintf("parsed %d\n", n)) {
		t.Errorf("%v\n%s", err, said.String())
	}
}
