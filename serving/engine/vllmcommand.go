package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
)

// Command runs `vllm serve`. Cached token counts need --enable-prompt-tokens-details. The engine dials the agent for KV
// events, so that nothing with prompts in it listens beyond loopback. Of a replica's hosts only the first has an API.
func (vllm) Command(s Spec) (Command, error) {
	if err := s.check(VLLM, s.ModelPath != ""); err != nil {
		return Command{}, err
	}
	if s.Elastic > 0 && s.Parallel.Pipeline > 1 {
		return Command{}, errCannot(VLLM, "is not elastic with pipeline parallelism")
	}
	args := []string{
		"serve", s.ModelPath, "--served-model-name", s.Model, "--host", "127.0.0.1", "--port", strconv.Itoa(s.Port),
		"--enable-prefix-caching", "--enable-prompt-tokens-details", "--scheduling-policy", "priority",
		"--enable-scale-out", // token ids of prompts, and cancelling
	}
	args = flag(args, "--max-model-len", s.Context)
	args = flag(args, "--max-num-seqs", int64(s.Slots))
	args = flag(args, "--max-num-queued-reqs", int64(s.Queue))
	args = flag(args, "--shutdown-timeout", int64(s.Drain))
	args = vllmParallel(args, &s)
	args, err := vllmSettings(args, &s)
	if err != nil {
		return Command{}, err
	}
	return Command{Path: cmp.Or(s.Executable, "vllm"), Args: append(args, s.Extra...), Env: vllmEnvironment(&s)}, nil
}

// vllmParallel appends how the replica is spread. Ranks of data parallelism are shared out over the hosts, each of which has
// whole ones; a rank that is larger than a host goes over several by its processes.
func vllmParallel(args []string, s *Spec) []string {
	args = flag(args, "--tensor-parallel-size", int64(s.Parallel.Tensor))
	args = flag(args, "--pipeline-parallel-size", int64(s.Parallel.Pipeline))
	args = flag(args, "--data-parallel-size", int64(s.Parallel.Data))
	if s.Parallel.Expert > 1 {
		args = append(args, "--enable-expert-parallel") // over all GPUs
	}
	if s.Elastic > 0 {
		args = append(args, "--enable-elastic-ep", "--elastic-ep-max-dp-size", strconv.Itoa(s.Elastic), "--enable-eplb") // it must move experts
	}
	if !s.Nodes.many() {
		return args
	}
	n := s.Nodes
	if first, count := s.Ranks(); count < s.Parallel.data() {
		args = append(args, "--data-parallel-size-local", strconv.Itoa(count), "--data-parallel-address", n.Master, "--data-parallel-rpc-port", strconv.Itoa(n.Port))
		args = flag(args, "--data-parallel-start-rank", int64(first))
	} else {
		args = append(args, "--nnodes", strconv.Itoa(n.Count), "--node-rank", strconv.Itoa(n.Rank), "--master-addr", n.Master, "--master-port", strconv.Itoa(n.Port))
	}
	if n.Rank > 0 {
		args = append(args, "--headless")
	}
	return args
}

// vllmSettings appends what is given as JSON, and the switches of features.
func vllmSettings(args []string, s *Spec) ([]string, error) {
	var err error
	add := func(name string, value any) {
		text, e := json.Marshal(value)
		if e != nil && err == nil {
			err = fmt.Errorf("engine: %s: %w", name, e)
		}
		args = append(args, name, string(text))
	}
	if sp := s.Speculative; sp != nil {
		method := sp.Method
		if method == "nextn" {
			method = "mtp"
		}
		add("--speculative-config", vllmSpeculative{method, sp.Draft, sp.Model})
	}
	if l := s.LoRA; l != nil {
		args = flag(append(args, "--enable-lora", "--max-loras", strconv.Itoa(max(l.Max, 1))), "--max-lora-rank", int64(l.Rank))
		if s.Parallel.Data > 1 && !s.Silent() {
			args = append(args, "--api-server-count", "1") // of several, one would know an adapter that was loaded, the others not
		}
		for i, a := range l.Adapters {
			if i == 0 {
				args = append(args, "--lora-modules")
			}
			args = append(args, a.Name+"="+a.Path)
		}
	}
	if s.Sleep {
		args = append(args, "--enable-sleep-mode")
	}
	transfer, e := vllmTransfer(s)
	switch {
	case e != nil:
		return nil, e
	case transfer != nil:
		add("--kv-transfer-config", transfer)
	case s.HostCache > 0:
		args = append(args, "--kv-offloading-size", strconv.FormatInt(max(s.tier()>>30, 1), 10)) // GiB
	}
	if s.Role == Encoder {
		args = append(args, "--mm-encoder-only")
	}
	if role := vllmEncoderRole(s); role != "" {
		add("--ec-transfer-config", map[string]string{"ec_connector": "ECCPUConnector", "ec_role": role})
	}
	if s.KVPort > 0 && s.Role != Encoder {
		add("--kv-events-config", vllmEvents(s))
	}
	return args, err
}

type vllmSpeculative struct {
	Method string `json:"method"`
	Draft  int    `json:"num_speculative_tokens"`
	Model  string `json:"model,omitempty"`
}

func vllmEncoderRole(s *Spec) string {
	switch {
	case s.Role == Encoder:
		return "ec_producer"
	case s.Vision && s.Role != Decode: // decode gets images as cache, from prefill
		return "ec_consumer"
	}
	return ""
}

// vllmConnector is the value of --kv-transfer-config.
type vllmConnector struct {
	Name   string         `json:"kv_connector"`
	Role   string         `json:"kv_role"`
	Engine string         `json:"engine_id,omitempty"`
	Buffer string         `json:"kv_buffer_device,omitempty"`
	Extra  map[string]any `json:"kv_connector_extra_config,omitempty"`
}

// vllmTransfer is the connector to peers, nil without any. Over NIXL each request says who gives and who takes. Over Mooncake
// the role is checked by asserts that end the engine. A tier in host memory stands beside the connector, which a flag for
// it would replace.
func vllmTransfer(s *Spec) (*vllmConnector, error) {
	t := s.Transfer
	if !s.hands() {
		return nil, nil
	}
	c := &vllmConnector{Role: "kv_both", Engine: t.Engine, Buffer: t.Buffer}
	switch {
	case t.Backend == "nixl" && t.Mode == "push":
		c.Name = "NixlPushConnector"
	case t.Backend == "nixl":
		c.Name = "NixlConnector"
	case t.Backend == "mooncake":
		c.Name, c.Role = "MooncakeConnector", "kv_producer"
		if s.Role == Decode {
			c.Role = "kv_consumer"
		}
	default:
		return nil, errCannot(VLLM, "hands no cache over by "+t.Backend)
	}
	if s.HostCache <= 0 {
		return c, nil
	}
	tier := vllmConnector{Name: "OffloadingConnector", Role: "kv_both", Extra: map[string]any{"cpu_bytes_to_use": s.tier()}}
	return &vllmConnector{Name: "MultiConnector", Role: c.Role, Engine: c.Engine, Extra: map[string]any{"connectors": []*vllmConnector{c, &tier}}}, nil
}

// tier is the host memory of one data-parallel rank: vLLM shares it out below that.
func (s *Spec) tier() int64 {
	_, ranks := s.Ranks()
	return s.HostCache / int64(ranks)
}

// vllmEnvironment names the side channels, by which peers shake hands: unset, an engine would shake its own.
func vllmEnvironment(s *Spec) []string {
	env := []string{"VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1"}
	address := cmp.Or(s.Address, "127.0.0.1")
	if s.Nodes.many() {
		env = append(env, "VLLM_HOST_IP="+address)
	}
	if t := s.Transfer; s.hands() {
		switch t.Backend {
		case "nixl":
			env = append(env, "VLLM_NIXL_SIDE_CHANNEL_HOST="+address, "VLLM_NIXL_SIDE_CHANNEL_PORT="+strconv.Itoa(t.Port))
		case "mooncake":
			env = append(env, "VLLM_HOST_IP="+address, "VLLM_MOONCAKE_BOOTSTRAP_PORT="+strconv.Itoa(t.Port))
		}
	}
	if vllmEncoderRole(s) != "" && s.Transfer != nil {
		env = append(env, "VLLM_EC_SIDE_CHANNEL_HOST="+address, "VLLM_EC_SIDE_CHANNEL_PORT="+strconv.Itoa(s.Transfer.Port-portSide+portEncoder))
	}
	if s.Deterministic {
		env = append(env, "VLLM_BATCH_INVARIANT=1")
	}
	if s.LoRA != nil {
		env = append(env, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1")
	}
	if s.Sleep {
		env = append(env, "VLLM_SERVER_DEV_MODE=1") // on loopback alone: the agent lets nobody through to it
	}
	return s.environment(env...)
}

type vllmEventConfig struct {
	Enable    bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint,omitempty"`
	Topic     string `json:"topic"`
}

// vllmEvents gives the ports of rank 0, to which each rank adds its number, whichever host it is on.
func vllmEvents(s *Spec) vllmEventConfig {
	c := vllmEventConfig{Enable: true, Publisher: "zmq", Topic: "kv-events"}
	c.Endpoint, c.Replay = s.eventEndpoints()
	return c
}

func (s *Spec) eventEndpoints() (events, replay string) {
	first, _ := s.Ranks()
	if s.ReplayPort > 0 {
		replay = loopback(s.ReplayPort - first)
	}
	return loopback(s.KVPort - first), replay
}

func loopback(port int) string { return "tcp://127.0.0.1:" + strconv.Itoa(port) }
