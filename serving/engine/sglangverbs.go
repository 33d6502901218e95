package engine

import (
	"context"
	"fmt"
	"net/http"

	"millrace/internal/fault"
)

type sglangVerbs struct{ noVerbs }

func (sglangVerbs) Cancel(ctx context.Context, c *http.Client, base, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	_, err := tell(ctx, c, base+"/abort_request", object("rid", id))
	return err
}

// Sleep releases weights and cache: SGLang reads the weights back from host memory.
func (sglangVerbs) Sleep(ctx context.Context, c *http.Client, base string) error {
	_, err := tell(ctx, c, base+"/release_memory_occupation", []byte("{}"))
	return err
}

func (sglangVerbs) Wake(ctx context.Context, c *http.Client, base string) error {
	_, err := tell(ctx, c, base+"/resume_memory_occupation", []byte("{}"))
	return err
}

func (sglangVerbs) LoadAdapter(ctx context.Context, c *http.Client, base string, a Adapter) error {
	_, err := tell(ctx, c, base+"/load_lora_adapter", adapterLoad(a))
	return err
}

func (sglangVerbs) UnloadAdapter(ctx context.Context, c *http.Client, base, name string) error {
	_, err := tell(ctx, c, base+"/unload_lora_adapter", adapterUnload(name))
	if fault.Is(err, fault.Invalid) { // it has one status for whatever goes wrong, and nothing else can
		return fault.Wrap(err, fault.NotFound, "The engine does not have the adapter %s.", name)
	}
	return err
}

// Resize goes up only, and answers before it is done.
func (sglangVerbs) Resize(ctx context.Context, c *http.Client, base string, ranks int) error {
	if err := checkRanks(ranks); err != nil {
		return err
	}
	_, err := tell(ctx, c, base+"/scale_elastic_ep", object("new_ep_size", ranks))
	return startedWithout(err)
}

func (sglangVerbs) Resizing(ctx context.Context, c *http.Client, base string) (bool, error) {
	answer, err := ask(ctx, c, http.MethodGet, base+"/is_scaling_elastic_ep", nil)
	if err != nil {
		return false, startedWithout(err)
	}
	return told(answer, "is_scaling_elastic_ep")
}

func (sglangVerbs) SwitchRole(ctx context.Context, c *http.Client, base, role string) error {
	if role != Prefill && role != Decode {
		return fault.New(fault.Invalid, "An engine switches to prefill or decode, not to %q.", role)
	}
	_, err := tell(ctx, c, base+"/pd_role_switch", object("new_role", role))
	return err
}

func (sglangVerbs) ResetPrefix(ctx context.Context, c *http.Client, base string) error {
	_, err := tell(ctx, c, base+"/flush_cache", nil)
	if fault.Is(err, fault.Invalid) {
		return fault.Wrap(err, fault.Unavailable, "Requests still hold prefixes.")
	}
	return err
}

// startedWithout reads a 404 with words: the path is there, what it does is not.
func startedWithout(err error) error {
	if fault.Is(err, fault.NotFound) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}
