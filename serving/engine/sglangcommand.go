package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// sglangBootstrapWait is how long an SGLang engine waits for its peer of a transfer, in seconds. Its default of 300 keeps a
// request's place for that long after the peer has died.
const sglangBootstrapWait = 60

// Command runs SGLang's server. Cached token counts need --enable-cache-report, loads --enable-metrics. Ranks of requests
// count from the lowest, and nobody's running answer is thrown back for a rank: it would be computed, and waited for, twice.
func (sglang) Command(s Spec) (Command, error) {
	if err := s.check(SGLang, s.ModelPath != ""); err != nil {
		return Command{}, err
	}
	host := "127.0.0.1"
	if s.Address != "" && (s.Role == Prefill || s.Role == Encoder) {
		host = s.Address // peers must reach it: a prefill engine's bootstrap server listens where its HTTP does
	}
	path, args := s.Executable, []string(nil)
	if path == "" {
		path, args = "python3", []string{"-m", "sglang.launch_server"}
	}
	args = append(args, "--model-path", s.ModelPath, "--served-model-name", s.Model, "--host", host, "--port", strconv.Itoa(s.Port),
		"--page-size", strconv.Itoa(sglangPage), "--enable-cache-report", "--enable-metrics",
		"--enable-priority-scheduling", "--schedule-low-priority-values-first", "--default-priority-value", "0", "--disable-priority-preemption")
	args = flag(args, "--context-length", s.Context)
	args = flag(args, "--max-running-requests", int64(s.Slots))
	args = flag(args, "--max-queued-requests", int64(s.Queue))
	args = sglangParallel(args, &s)
	args, err := sglangRole(args, &s)
	if err != nil {
		return Command{}, err
	}
	args = sglangFeatures(args, &s)
	if s.KVPort > 0 && s.Role != Encoder {
		events, err := json.Marshal(sglangEvents(&s))
		if err != nil {
			return Command{}, fmt.Errorf("engine: event settings: %w", err)
		}
		args = append(args, "--kv-events-config", string(events))
	}
	c := Command{Path: path, Args: append(args, s.Extra...), Env: sglangEnvironment(&s)}
	if host != "127.0.0.1" {
		c.Host = host
	}
	return c, nil
}

// sglangParallel appends how the replica is spread: SGLang counts tensor parallelism over all of a pipeline stage's GPUs, of
// which data parallelism of the attention takes groups.
func sglangParallel(args []string, s *Spec) []string {
	p := s.Parallel
	if p.Data > 1 {
		args = append(flag(args, "--tp-size", int64(p.tensor()*p.Data)), "--dp-size", strconv.Itoa(p.Data), "--enable-dp-attention")
	} else {
		args = flag(args, "--tp-size", int64(p.Tensor))
	}
	args = flag(args, "--pp-size", int64(p.Pipeline))
	args = flag(args, "--ep-size", int64(p.Expert))
	if s.Elastic > 0 {
		args = append(args, "--elastic-ep-backend", "mooncake")
	}
	if n := s.Nodes; n.many() {
		args = append(args, "--nnodes", strconv.Itoa(n.Count), "--node-rank", strconv.Itoa(n.Rank), "--dist-init-addr", hostPort(n.Master, n.Port))
	}
	return args
}

// sglangRole appends what the engine is in its unit.
func sglangRole(args []string, s *Spec) ([]string, error) {
	switch s.Role {
	case Encoder:
		return append(args, "--encoder-only"), nil
	case Prefill, Decode:
		t := s.Transfer
		switch t.Backend {
		case "mooncake", "nixl", "ascend":
		default:
			return nil, errCannot(SGLang, "hands no cache over by "+t.Backend)
		}
		args = append(args, "--disaggregation-mode", s.Role, "--disaggregation-transfer-backend", t.Backend)
		if s.Role == Prefill {
			args = append(args, "--disaggregation-bootstrap-port", strconv.Itoa(t.Port))
		}
		if len(s.RDMA) > 0 {
			args = append(args, "--disaggregation-ib-device", strings.Join(s.RDMA, ","))
		}
		if t.Switch {
			args = append(args, "--enable-pd-role-switch")
		}
	}
	if s.Vision && s.Role != Decode {
		args = append(args, "--language-only")
		if len(s.Encoders) > 0 {
			args = append(append(args, "--encoder-urls"), s.Encoders...)
		}
	}
	return args, nil
}

func sglangFeatures(args []string, s *Spec) []string {
	if sp := s.Speculative; sp != nil {
		args = append(args, "--speculative-algorithm", sglangMethod(sp.Method), "--speculative-num-steps", strconv.Itoa(sp.Draft),
			"--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", strconv.Itoa(sp.Draft+1))
		if sp.Model != "" {
			args = append(args, "--speculative-draft-model-path", sp.Model)
		}
	}
	if l := s.LoRA; l != nil {
		args = flag(append(args, "--enable-lora", "--max-loras-per-batch", strconv.Itoa(max(l.Max, 1))), "--max-lora-rank", int64(l.Rank))
		for i, a := range l.Adapters {
			if i == 0 {
				args = append(args, "--lora-paths")
			}
			args = append(args, a.Name+"="+a.Path)
		}
	}
	if s.Deterministic {
		args = append(args, "--enable-deterministic-inference")
	}
	if s.Sleep {
		args = append(args, "--enable-memory-saver")
	}
	if s.HostCache > 0 {
		args = append(args, "--enable-hierarchical-cache", "--hicache-size", gigabytes(s.HostCache/s.processes()))
	}
	return args
}

// sglangMethod is the name that SGLang has for a method.
func sglangMethod(method string) string {
	if method == "mtp" {
		return "NEXTN"
	}
	return strings.ToUpper(method)
}

func sglangEnvironment(s *Spec) []string {
	env := []string{"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=false", "DO_NOT_TRACK=1"}
	if s.Nodes.many() || s.hands() {
		env = append(env, "SGLANG_HOST_IP="+cmp.Or(s.Address, "127.0.0.1"))
	}
	if s.hands() {
		wait := strconv.Itoa(sglangBootstrapWait)
		env = append(env, "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT="+wait, "SGLANG_DISAGGREGATION_WAITING_TIMEOUT="+wait)
	}
	return s.environment(env...)
}

// sglangEventConfig is vLLM's but for the switch, which is the publisher's name.
type sglangEventConfig struct {
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint,omitempty"`
	Topic     string `json:"topic"`
}

func sglangEvents(s *Spec) sglangEventConfig {
	c := sglangEventConfig{Publisher: "zmq", Topic: "kv-events"}
	c.Endpoint, c.Replay = s.eventEndpoints()
	return c
}

const gigabyte = 1_000_000_000

// gigabytes rounds down, but not to none.
func gigabytes(bytes int64) string { return strconv.FormatInt(max(bytes/gigabyte, 1), 10) }
