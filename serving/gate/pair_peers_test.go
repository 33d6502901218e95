package gate_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/usage"
	"millrace/serving/engine"
)

// Where engines look for their peers is never a client's to say, in a body or in a header.
func TestPeersNeverComeFromClients(t *testing.T) {
	for _, m := range handoffs {
		f := newFleet(t, m, shape{})
		for _, member := range []string{
			`"kv_transfer_params":{"do_remote_prefill":true,"remote_host":"169.254.169.254","remote_port":80,"remote_engine_id":"x","remote_request_id":"y"}`,
			`"KV_Transfer_Params":{}`, `"ec_transfer_params":{"h":{"peer_host":"10.9.9.9"}}`, `"bootstrap_host":"10.9.9.9"`, `"bootstrap_port":1`, `"bootstrap_room":7`,
			`"disaggregated_params":{"request_type":"context_only"}`, `"data_parallel_rank":1`, `"routed_dp_rank":1`, `"disagg_prefill_dp_rank":0`,
			`"prompt_token_ids":[1]`, `"request_id":"a"`, `"rid":"a"`, `"nvext":{}`,
		} {
			if answer, body, err := post(t, f.Stand, carried+","+member+"}"); err != nil || answer.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %s: %v %s", m.name, member, answer.Status, body)
			}
		}
		if p, _ := f.p[0].asked(); len(p) != 0 {
			t.Fatalf("%s: P was asked", m.name)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, strings.NewReader(carried+"}"))
		if err != nil {
			t.Fatal(err)
		}
		steering := []string{"X-Override-Bootstrap-Host", "X-Override-Bootstrap-Port", "X-Override-Bootstrap-Room", "X-Override-Rid", "X-Override-Routed-Dp-Rank", "X-Override-Priority",
			"X-Data-Parallel-Rank", "X-Data-Parallel-Host-Port", "X-Prefiller-Host-Port", "X-Encoder-Hosts-Ports", "X-Smg-Target-Worker", "X-Request-Id", "X-Gateway-Destination-Endpoint"}
		for _, name := range steering {
			req.Header.Set(name, "10.9.9.9:80")
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		ph, pt := f.p[0].asked()
		dh, dt := f.d[0].asked()
		if answer.StatusCode != 200 || len(ph) != 1 || len(dh) != 1 {
			t.Fatalf("%s: %s, %d and %d requests", m.name, answer.Status, len(ph), len(dh))
		}
		for _, name := range steering {
			if ph[0].Get(name)+dh[0].Get(name) != "" {
				t.Errorf("%s: %s reached an engine", m.name, name)
			}
		}
		if strings.Contains(pt[0]+dt[0], "10.9.9.9") {
			t.Errorf("%s: a client's peer reached an engine: %s %s", m.name, pt[0], dt[0])
		}
		f.clean()
	}
}

// pictured is a chat with n images.
func pictured(n int) string {
	return `{"model":"acme/test","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"}` +
		strings.Repeat(`,{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`, n) + `]}],"temperature":0,"max_tokens":10}`
}

// Encoders take one image each before the prefill, which is told what they answered; it encodes itself what none of them took.
// Nobody pays for that.
func TestEncodersTakeImages(t *testing.T) {
	f := newFleet(t, modeOf("nixl-pull"), shape{})
	f.e = []*node{f.start(engine.Encoder, &shape{}), f.start(engine.Encoder, &shape{})}
	f.join(0)
	for i, c := range []struct {
		images, legs, failed int
		fault                string
	}{{0, 0, 0, `{}`}, {3, 3, 0, `{}`}, {2, 3, 1, `{"fail_before_first":500,"times":1}`}, {9, 0, 0, `{}`}, {1, 2, 2, `{"fail_before_first":500}`}} {
		f.e[0].faults(t, c.fault)
		if c.failed == 2 {
			f.e[1].faults(t, c.fault)
		}
		answer, body, err := post(t, f.Stand, pictured(c.images))
		if err != nil || answer.StatusCode != 200 {
			t.Fatalf("%v %s", err, body)
		}
		e := f.Log.Events()[i]
		legs, failed := 0, 0
		for _, a := range e.Attempts {
			if a.Leg == usage.LegEncode {
				legs++
				if a.Note != "" {
					failed++
				}
			}
		}
		_, texts := f.p[0].asked()
		told := strings.Contains(texts[len(texts)-1], `"ec_transfer_params"`)
		if legs != c.legs || failed != c.failed || e.Usage.Generated() != 10 || told != (legs > failed) {
			t.Errorf("%s images: %d legs, %d failed, told %v: %+v", strconv.Itoa(c.images), legs, failed, told, e)
		}
	}
	if n := f.Gate.Stats().Unencoded; n != 1 {
		t.Errorf("%d images were not encoded", n)
	}
	f.clean()
}

// A unit without Encoders, or of an engine that has none, is asked nothing of the kind.
func TestImagesWithoutEncoders(t *testing.T) {
	f := newFleet(t, modeOf("mooncake"), shape{})
	if answer, body, err := post(t, f.Stand, pictured(2)); err != nil || answer.StatusCode != 200 || len(f.Log.Events()[0].Attempts) != 2 {
		t.Errorf("%v %s", err, body)
	}
}
