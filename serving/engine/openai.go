package engine

import (
	"context"
	"net/http"

	"millrace/internal/fault"
)

// openAI drives any server or provider with OpenAI's dialect that someone else runs. It is attached, never supervised:
// nothing but Chat Completions is asked of it, and no field that only some servers know is sent.
type openAI struct{ noVerbs }

var openAIChat = chatRules{forced: `"stream":true,"stream_options":{"include_usage":true}`, constrain: plainConstraints}

func (openAI) Family() Family { return OpenAI }
func (openAI) Label() string  { return "OpenAI-compatible" }
func (openAI) Caps() Caps     { return Caps{} }
func (openAI) BlockSize() int { return 0 }

func (openAI) PrepareChat(dst, body []byte, p ChatParams) ([]byte, error) {
	return openAIChat.prepare(dst, body, p)
}

func (openAI) Drops(member string) bool { return openAIChat.drops(member) }
func (openAI) Alive() string            { return "/v1/models" }

func (openAI) UsageMark() []byte                  { return []byte(usageMark) }
func (openAI) Usage(chunk []byte) (Report, error) { return usageOf(chunk) }

func (openAI) Command(Spec) (Command, error) { return Command{}, ErrUnsupported }

// Ready generates one token. Newer models of OpenAI's refuse max_tokens, older servers do not know
// max_completion_tokens: the second is tried when the first is refused.
func (openAI) Ready(ctx context.Context, c *http.Client, base, model string) error {
	err := oneToken(ctx, c, base, model, "max_tokens")
	if err == nil || !fault.Is(err, fault.Upstream) {
		return err
	}
	if oneToken(ctx, c, base, model, "max_completion_tokens") == nil {
		return nil
	}
	return err
}

func (openAI) Load(context.Context, *http.Client, string) (Load, error) {
	return Load{}, ErrUnsupported
}

func (openAI) Tokens(context.Context, *http.Client, string, []byte) ([]uint32, error) {
	return nil, ErrUnsupported
}
