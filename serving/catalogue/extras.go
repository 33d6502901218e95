package catalogue

import (
	"context"
	"errors"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// UsualExtras are the members beyond OpenAI's that customers may send to a model for which nothing else was set: sampling,
// templates, constraints on the output. Engines that do not know one ignore or refuse it.
var UsualExtras = []string{
	"add_generation_prompt", "allowed_token_ids", "bad_words", "chat_template_kwargs", "continue_final_message", "documents", "ebnf",
	"enable_thinking", "grammar", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "ignore_eos", "length_penalty",
	"min_p", "min_tokens", "mirostat", "mirostat_eta", "mirostat_tau", "no_repeat_ngram_size", "reasoning", "regex",
	"repetition_penalty", "separate_reasoning", "skip_special_tokens", "spaces_between_special_tokens", "stop_token_ids",
	"structured_outputs", "thinking", "thinking_budget", "thinking_token_budget", "top_k", "typical_p", "xtc_probability", "xtc_threshold",
}

// Limits of a model's list.
const (
	maxExtras     = 128
	maxExtraBytes = 64
)

var extraName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func checkExtras(list []string) error {
	if len(list) > maxExtras {
		return fault.New(fault.Invalid, "There are more than %d engine extras.", maxExtras).WithParam("engine_extras")
	}
	for _, name := range list {
		switch {
		case len(name) > maxExtraBytes || !extraName.MatchString(name):
			return fault.New(fault.Invalid, "An engine extra is the name of a member, such as top_k.").WithParam("engine_extras")
		case engine.Steers([]byte(name)):
			return fault.New(fault.Invalid, "%s steers engines: only Millrace may set it.", name).WithParam("engine_extras")
		}
	}
	return nil
}

// extras is what a model's list means: none set is the usual ones, an empty list is none.
func extras(set []string) []string {
	if set == nil {
		return UsualExtras
	}
	return set
}

// SetExtras sets which members beyond OpenAI's a model's customers may send; nil = the usual ones. It gives the list that
// holds now.
func (c *Catalogue) SetExtras(ctx context.Context, model ids.ID, list []string, by tenants.Actor) ([]string, error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	if err := checkExtras(list); err != nil {
		return nil, err
	}
	if list != nil {
		list = slices.Compact(slices.Sorted(slices.Values(list)))
		if list == nil {
			list = []string{}
		}
	}
	err := c.o.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		before, err := q.New(tx).SetEngineExtras(ctx, q.SetEngineExtrasParams{ID: model, EngineExtras: list})
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.NotFound, "There is no such model.")
		}
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "model.extras", Target: ids.Format(ids.Model, model),
			Before: before, After: list, At: c.o.Clock.Now().UTC()})
	})
	if err != nil {
		return nil, err
	}
	c.changed(ctx)
	return extras(list), nil
}
