package engine

import (
	"context"
	"errors"
	"net/http"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// vllmVerbs are vLLM's, and the simulated engine's by itself. Sleeping and resetting need its development mode, adapters
// VLLM_ALLOW_RUNTIME_LORA_UPDATING, cancelling --enable-scale-out: Command sets them where the spec asks for them.
type vllmVerbs struct{ noVerbs }

// Cancel names the request as answers to chats and to texts do. An engine with several API processes, as with several ranks,
// may ask one that does not know it: closing the connection reaches the right one.
func (vllmVerbs) Cancel(ctx context.Context, c *http.Client, base, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	list := scan.Quote([]byte{'['}, "chatcmpl-"+id)
	list = append(scan.Quote(append(list, ','), "cmpl-"+id+"-0"), ']')
	_, err := tell(ctx, c, base+"/inference/v1/abort_requests", object("request_ids", list))
	return err
}

// Sleep keeps the weights in host memory (level 1).
func (vllmVerbs) Sleep(ctx context.Context, c *http.Client, base string) error {
	_, err := tell(ctx, c, base+"/sleep?level=1&mode=wait", nil)
	return err
}

func (vllmVerbs) Wake(ctx context.Context, c *http.Client, base string) error {
	_, err := tell(ctx, c, base+"/wake_up", nil)
	return err
}

func (vllmVerbs) LoadAdapter(ctx context.Context, c *http.Client, base string, a Adapter) error {
	_, err := tell(ctx, c, base+"/v1/load_lora_adapter", adapterLoad(a))
	return err
}

func (vllmVerbs) UnloadAdapter(ctx context.Context, c *http.Client, base, name string) error {
	_, err := tell(ctx, c, base+"/v1/unload_lora_adapter", adapterUnload(name))
	return err
}

// Resize answers when it is done. The engine refuses requests meanwhile, so the caller should not wait by this call alone.
func (v vllmVerbs) Resize(ctx context.Context, c *http.Client, base string, ranks int) error {
	if err := checkRanks(ranks); err != nil {
		return err
	}
	if busy, err := v.Resizing(ctx, c, base); err == nil && busy {
		return fault.New(fault.Conflict, "The engine is being resized already.")
	}
	_, err := tell(ctx, c, base+"/scale_elastic_ep", object("new_data_parallel_size", ranks))
	return err
}

// Resizing is a GET since 0.33, and a POST before.
func (vllmVerbs) Resizing(ctx context.Context, c *http.Client, base string) (bool, error) {
	answer, err := ask(ctx, c, http.MethodGet, base+"/is_scaling_elastic_ep", nil)
	if errors.Is(err, ErrUnsupported) {
		answer, err = tell(ctx, c, base+"/is_scaling_elastic_ep", nil)
	}
	if err != nil {
		return false, err
	}
	return told(answer, "is_scaling_elastic_ep")
}

// ResetPrefix fails while requests hold blocks.
func (vllmVerbs) ResetPrefix(ctx context.Context, c *http.Client, base string) error {
	answer, err := tell(ctx, c, base+"/reset_prefix_cache", nil)
	if err != nil {
		return err
	}
	if done, err := told(answer, "success"); err != nil || !done {
		return fault.New(fault.Unavailable, "Requests still hold prefixes.")
	}
	return nil
}
