package engine

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// trtllmEventBuffer is how many events wait between two polls; older ones are lost, and the gap shows in their ids.
const trtllmEventBuffer = 65_536

// trtllmTransferMillis is how long a transfer of the cache may take.
const trtllmTransferMillis = 60_000

// Command runs trtllm-serve. What has no flag goes by a file. The server calls the model by its folder's name, and takes any
// name in requests. Several hosts need a launcher for MPI, which is not this agent's to be.
func (trtllm) Command(s Spec) (Command, error) {
	if err := s.check(TRTLLM, s.ModelPath != "" && s.DataDir != ""); err != nil {
		return Command{}, err
	}
	options, err := trtllmOptions(&s)
	if err != nil {
		return Command{}, err
	}
	file := File{Path: filepath.Join(s.DataDir, "trtllm.yaml"), Data: options, Mode: 0o644}
	args := []string{s.ModelPath, "--host", "127.0.0.1", "--port", strconv.Itoa(s.Port)}
	if s.Role == Encoder {
		args = append([]string{"mm_embedding_serve"}, args...)
	} else {
		args = append(args, "--config", file.Path)
	}
	args = flag(args, "--max_seq_len", s.Context)
	args = flag(args, "--max_batch_size", int64(s.Slots))
	if p := s.Parallel; p.Data > 1 { // ranks of the attention are those of its tensor parallelism
		args = append(args, "--tp_size", strconv.Itoa(p.Data))
	} else {
		args = flag(args, "--tp_size", int64(p.Tensor))
	}
	args = flag(args, "--pp_size", int64(s.Parallel.Pipeline))
	args = flag(args, "--ep_size", int64(s.Parallel.Expert))
	c := Command{Path: cmp.Or(s.Executable, "trtllm-serve"), Args: append(args, s.Extra...), Env: trtllmEnvironment(&s)}
	if s.Role != Encoder {
		c.Files = []File{file}
	}
	return c, nil
}

func trtllmEnvironment(s *Spec) []string {
	env := []string{"TRTLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1"}
	if t := s.Transfer; s.hands() {
		env = append(env, "TRTLLM_DISAGG_ENABLE_INFLIGHT_CANCEL=1") // else a client that left keeps both ends' blocks
		if t.Backend == "nixl" {
			env = append(env, "TRTLLM_NIXL_KVCACHE_BACKEND=UCX")
		}
	}
	return s.environment(env...)
}

// trtllmOptions is the file: metrics for Load, the queue by rank, prefixes reused, the hand-over of the cache.
func trtllmOptions(s *Spec) ([]byte, error) {
	switch {
	case s.Nodes.many():
		return nil, errCannot(TRTLLM, "over several hosts needs a launcher for MPI")
	case s.Parallel.Data > 1 && s.Parallel.Tensor > 1:
		return nil, errCannot(TRTLLM, "has either tensor or data parallelism of the attention, not both")
	case s.LoRA != nil:
		return nil, errCannot(TRTLLM, "loads no adapters while it runs")
	case s.Deterministic:
		return nil, errCannot(TRTLLM, "has no deterministic mode")
	case s.Vision && s.Role != Encoder:
		return nil, errCannot(TRTLLM, "takes no encoded images over HTTP")
	}
	var b strings.Builder
	b.WriteString("return_perf_metrics: true\nenable_iter_perf_stats: true\nenable_chunked_prefill: true\n")
	b.WriteString("scheduler_config:\n  waiting_queue_policy: priority\n")
	if s.Parallel.Data > 1 {
		b.WriteString("enable_attention_dp: true\n")
	}
	if err := trtllmHandOver(&b, s); err != nil {
		return nil, err
	}
	if sp := s.Speculative; sp != nil {
		if err := trtllmSpeculative(&b, sp); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(&b, "kv_cache_config:\n  enable_block_reuse: true\n  tokens_per_block: %d\n", trtllmBlock)
	fmt.Fprintf(&b, "  event_buffer_max_size: %d\n", trtllmEventBuffer)
	if s.HostCache > 0 {
		fmt.Fprintf(&b, "  host_cache_size: %d\n", s.HostCache/s.processes())
	}
	return []byte(b.String()), nil
}

func trtllmHandOver(b *strings.Builder, s *Spec) error {
	t := s.Transfer
	if t == nil {
		return nil
	}
	backend := strings.ToUpper(t.Backend)
	switch backend {
	case "UCX", "NIXL", "MPI":
	default:
		return errCannot(TRTLLM, "hands no cache over by "+t.Backend)
	}
	if s.Role == Prefill {
		b.WriteString("disable_overlap_scheduler: true\n") // the context server must not run ahead of a hand-over
	}
	fmt.Fprintf(b, "cache_transceiver_config:\n  backend: %s\n  kv_transfer_timeout_ms: %d\n", backend, trtllmTransferMillis)
	if s.Context > 0 {
		fmt.Fprintf(b, "  max_tokens_in_buffer: %d\n", s.Context)
	}
	return nil
}

func trtllmSpeculative(b *strings.Builder, sp *Speculative) error {
	b.WriteString("speculative_config:\n")
	switch sp.Method {
	case "nextn", "mtp":
		fmt.Fprintf(b, "  decoding_type: MTP\n  num_nextn_predict_layers: %d\n", sp.Draft)
		return nil
	case "eagle", "eagle3":
		fmt.Fprintf(b, "  decoding_type: Eagle\n  max_draft_len: %d\n", sp.Draft)
	case "ngram":
		fmt.Fprintf(b, "  decoding_type: NGram\n  max_draft_len: %d\n", sp.Draft)
	default:
		return errCannot(TRTLLM, "has no speculative decoding by "+sp.Method)
	}
	if sp.Model != "" {
		fmt.Fprintf(b, "  speculative_model_dir: %s\n", strconv.Quote(sp.Model))
	}
	return nil
}
