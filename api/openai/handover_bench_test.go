package openai_test

import (
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"millrace/api/inference"
	"millrace/api/openai"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
	"millrace/serving/gate/gatetest"
)

// prefillAnswer is what a prefill engine answers, with room for what real ones tell.
var prefillAnswer = `{"id":"chatcmpl-raw","object":"chat.completion","created":1700000000,"model":"inner","choices":[{"index":0,"message":{"role":"assistant","content":"A"},"finish_reason":"length"}],` +
	`"usage":{"prompt_tokens":16,"total_tokens":17,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,` +
	`"remote_block_ids":[[` + strings.TrimSuffix(strings.Repeat("4711,", 64), ",") + `]],"remote_engine_id":"e","remote_request_id":"chatcmpl-r","remote_host":"10.0.0.1","remote_port":5600,"tp_size":1}}`

// BenchmarkHandover is the gateway's cost of a request that two engines serve beside one that a single engine does, both with
// the cheapest possible engines; a prefill leg by itself is what its engine and its client cost.
func BenchmarkHandover(b *testing.B) {
	for _, kind := range []struct{ name, members string }{{"stream", `,"stream":true,"max_tokens":100`}, {"whole", `,"max_tokens":8`}} {
		decode := upstreamURL(b, sim.RawConfig{Tokens: 100})
		prefill := gatetest.NewEngine(b, gatetest.Refuse(200, prefillAnswer)).URL
		body := []byte(`{"model":"acme/test","messages":[{"role":"user","content":"` + strings.Repeat("word ", 60) + `"}]` + kind.members + `}`)
		b.Run(kind.name+"/prefill-direct", func(b *testing.B) { load(b, prefill, "/v1/chat/completions", body) })
		for _, unit := range []struct {
			name     string
			family   engine.Family
			transfer engine.Transfer
		}{{"one-engine", engine.VLLM, engine.Transfer{}}, {"nixl-pull", engine.VLLM, engine.Transfer{Backend: "nixl"}}, {"bootstrap-rooms", engine.SGLang, engine.Transfer{Backend: "nixl"}}} {
			s := gatetest.New(b, gatetest.Options{Direct: true}, &gatetest.Engine{URL: decode})
			if unit.transfer.Backend != "" {
				s.Model.Units = []*catalogue.Unit{joined(b, unit.family, unit.transfer, prefill, decode)}
			}
			e := echo.New()
			(&openai.API{Gate: s.Gate, Door: inference.Door{Auth: keyring{s.Caller}, Clock: clock.System}, Models: s.Models, Prices: pricelist{}}).Register(e)
			url := gatetest.Serve(b, e)
			b.Run(kind.name+"/"+unit.name, func(b *testing.B) { load(b, url, "/v1/chat/completions", body) })
		}
	}
}

// joined is a unit of one prefill and one decode engine.
func joined(b *testing.B, f engine.Family, t engine.Transfer, prefill, decode string) *catalogue.Unit {
	b.Helper()
	part := func(role, url string) *catalogue.Unit {
		u, err := catalogue.NewUnit(catalogue.Spec{ID: ids.New(), Name: role, Engine: f, UpstreamModel: "inner", Base: url, Role: role,
			Peer: engine.Peer{Host: "10.0.0.1", Port: 8998, Rank: -1}}, clock.System, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(u.Pool().Close)
		return u
	}
	u, err := catalogue.Join(catalogue.Spec{ID: ids.New(), Name: "pd", Engine: f, UpstreamModel: "inner"}, t, 0,
		[]*catalogue.Unit{part(engine.Prefill, prefill), part(engine.Decode, decode)})
	if err != nil {
		b.Fatal(err)
	}
	return u
}
