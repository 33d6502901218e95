package up

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"millrace/serving/engine"
)

// attachment is one --attach NAME=URL,engine=FAMILY[,model=UPSTREAM][,key-env=VARIABLE][,context=TOKENS].
type attachment struct {
	name     string // public model name, and the unit's
	url      string
	engine   engine.Family
	upstream string // the name the engine knows; "" = ask it
	key      string
	context  int64 // 0 = ask it
}

func parseAttachment(s string) (attachment, error) {
	name, rest, ok := strings.Cut(s, "=")
	fields := strings.Split(rest, ",")
	a := attachment{name: strings.TrimSpace(name), url: strings.TrimSpace(fields[0]), engine: engine.OpenAI}
	if !ok || a.name == "" || a.url == "" {
		return a, fmt.Errorf("--attach %q: want NAME=URL,engine=vllm, for example --attach acme/llama=http://127.0.0.1:8000,engine=vllm", s)
	}
	var err error
	if a.url, err = engine.CleanBase(a.url); err != nil {
		return a, fmt.Errorf("--attach %s: %w", a.name, err)
	}
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(strings.TrimSpace(f), "=")
		switch k {
		case "engine":
			a.engine = engine.Family(v)
		case "model":
			a.upstream = v
		case "key-env":
			if a.key = os.Getenv(v); a.key == "" {
				return a, fmt.Errorf("--attach %s: the environment variable %s is empty", a.name, v)
			}
		case "context":
			if _, err := fmt.Sscan(v, &a.context); err != nil || a.context < 1 {
				return a, fmt.Errorf("--attach %s: context=%s is not a number of tokens", a.name, v)
			}
		default:
			return a, fmt.Errorf("--attach %s: unknown option %q (engine, model, key-env, context)", a.name, k)
		}
	}
	if _, err := engine.Lookup(a.engine); err != nil {
		return a, fmt.Errorf("--attach %s: %w", a.name, err)
	}
	return a, nil
}

const askTimeout = 5 * time.Second

// ask fills in what the engine itself can tell: the name of its first model and its context. An engine that is not up
// yet may be attached all the same; then the public name is used.
func (a *attachment) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	offers, _ := engine.Offers(ctx, engine.Keyed(a.key), a.url) // an error: it tells nothing
	for _, o := range offers {
		if a.upstream == "" || a.upstream == o.Model {
			a.upstream = o.Model
			if a.context == 0 {
				a.context = o.Context
			}
			break
		}
	}
	if a.upstream == "" {
		a.upstream = a.name
	}
	if a.context == 0 {
		a.context = engine.AssumedContext
	}
}
