package recipe

import (
	"bytes"
	"strings"
	"testing"

	"millrace/internal/fault"
)

const good = `
name: llama
engine: vllm
version: 0.33.0
model: {name: llama, path: meta/llama, context: 8192}
hardware: [{arch: [sm90], memory_gib: 80}]
pools: [{role: whole, gpus: 4, parallel: {tensor: 4}}]
`

func TestTheStarterCatalogueIsGood(t *testing.T) {
	all, err := Starter()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range all {
		if seen[r.Name] || seen[r.Digest()] {
			t.Errorf("%s is there twice", r.Name)
		}
		seen[r.Name], seen[r.Digest()] = true, true
		if r.Description == "" {
			t.Errorf("%s has no description", r.Name)
		}
		if r.Cost != nil && !strings.HasPrefix(r.Cost.From, "estimate") {
			t.Errorf("%s claims a measurement: %q", r.Name, r.Cost.From)
		}
	}
	if len(all) < 10 {
		t.Errorf("only %d recipes", len(all))
	}
}

func TestItsOwnTextIsTheSameRecipe(t *testing.T) {
	all, err := Starter()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		text, err := r.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v\n%s", r.Name, err, text)
		}
		second, err := again.YAML()
		if err != nil || !bytes.Equal(text, second) || again.Digest() != r.Digest() {
			t.Errorf("%s changes: %v\n%s\n%s", r.Name, err, text, second)
		}
	}
}

func TestTheDigestIsOfWhatIsSaid(t *testing.T) {
	read := func(text string) string {
		t.Helper()
		r, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return r.Digest()
	}
	first := read(good)
	for name, same := range map[string]string{
		"a comment":    "# mine\n" + good,
		"a default":    strings.Replace(good, "role: whole,", "role: whole, replicas: 1,", 1),
		"a fit":        good + "cost: {a0_us: 1, a1_us: 1, b0_us: 1, b1_us: 1, b2_us: 1, error: 0.1, from: here}\n",
		"a golden one": good + "golden: [{prompt: hi, tokens: 3}]\n",
	} {
		if read(same) != first {
			t.Errorf("%s makes it another recipe", name)
		}
	}
	for name, other := range map[string]string{
		"a version": strings.Replace(good, "0.33.0", "0.33.1", 1),
		"a flag":    strings.Replace(good, "gpus: 4,", "gpus: 4, flags: [--x],", 1),
		"a mode":    good + "deterministic: true\n",
	} {
		if read(other) == first {
			t.Errorf("%s makes no other recipe", name)
		}
	}
}

func TestWhatIsNoRecipe(t *testing.T) {
	split := strings.Replace(good, "{role: whole, gpus: 4, parallel: {tensor: 4}}", "{role: prefill, gpus: 1}, {role: decode, gpus: 1}", 1)
	for name, c := range map[string]struct{ text, param string }{
		"nothing":             {"", ""},
		"two":                 {good + "---\n" + good, ""},
		"a list":              {"[1, 2]", ""},
		"a misspelt member":   {strings.Replace(good, "version:", "versoin:", 1), ""},
		"a text for a number": {strings.Replace(good, "gpus: 4", "gpus: four", 1), ""},
		"a name with a space": {strings.Replace(good, "name: llama\n", "name: my llama\n", 1), "name"},
		"an unknown engine":   {strings.Replace(good, "vllm", "vlm", 1), "engine"},
		"an attached engine":  {strings.Replace(good, "vllm", "openai", 1), "engine"},
		"no weights":          {strings.Replace(good, "meta/llama", `""`, 1), "model.path"},
		"no context":          {strings.Replace(good, "context: 8192", "context: 0", 1), "model.context"},
		"no hardware":         {strings.Replace(good, "[{arch: [sm90], memory_gib: 80}]", "[]", 1), "hardware"},
		"an odd architecture": {strings.Replace(good, "sm90", `"9.0"`, 1), "hardware[0].arch"},
		"too few GPUs":        {strings.Replace(good, "tensor: 4", "tensor: 8", 1), "pools[0].parallel"},
		"EP that divides not": {strings.Replace(good, "tensor: 4", "tensor: 4, expert: 3", 1), "pools[0].parallel.expert"},
		"EP that grows":       {strings.Replace(good, "{tensor: 4}", "{tensor: 4, expert: 4}, expert_to: [2, 4]", 1), "pools[0].expert_to"},
		"a small domain":      {strings.Replace(good, "gpus: 4,", "gpus: 4, domain: 2,", 1), "pools[0].domain"},
		"an odd variable":     {strings.Replace(good, "gpus: 4,", "gpus: 4, env: {a b: c},", 1), "pools[0].env"},
		"prefill alone":       {strings.Replace(good, "whole", "prefill", 1) + "transfer: {backend: nixl}\n", "pools"},
		"two whole pools":     {strings.Replace(good, "pools: [", "pools: [{role: whole, gpus: 1}, ", 1), "pools[1].role"},
		"no transfer":         {split, "transfer"},
		"another's transfer":  {split + "transfer: {backend: ucx}\n", "transfer.backend"},
		"an unknown mode":     {split + "transfer: {backend: nixl, mode: throw}\n", "transfer.mode"},
		"needless transfer":   {good + "transfer: {backend: nixl}\n", "transfer"},
		"draft":               {good + "speculative: {method: eagle, draft: 0}\n", "speculative.draft"},
		"a cost from nowhere": {good + "cost: {a0_us: 1, a1_us: 1, b0_us: 1, b1_us: 1, b2_us: 1, error: 0}\n", "cost.from"},
		"too long":            {good + "# " + strings.Repeat("x", MaxBytes), ""},
	} {
		r, err := Parse([]byte(c.text))
		f := fault.Of(err)
		if err == nil || f.Kind != fault.Invalid || f.Param != c.param {
			t.Errorf("%s: %+v, %v (param %q, want %q)", name, r, err, f.Param, c.param)
		}
	}
	if _, err := Parse([]byte(split + "transfer: {backend: nixl, mode: pull}\n")); err != nil {
		t.Error(err)
	}
}

func TestAStoredRecipeStaysReadable(t *testing.T) {
	r, err := Reread([]byte(strings.Replace(good, "engine: vllm", "engine: gone\nformer: member", 1)))
	if err != nil || r.Engine != "gone" || r.Pools[0].Replicas != 1 || r.Pools[0].Domain != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	first, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Reread([]byte(good)); err != nil || again.Digest() != first.Digest() {
		t.Errorf("%+v, %v", again, err)
	}
	if r, err := Reread([]byte("[")); err == nil {
		t.Errorf("%+v", r)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		own, err := r.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(own)
		if err != nil || again.Digest() != r.Digest() {
			t.Fatalf("its own text is another recipe: %v\n%s", err, own)
		}
	})
}

// YAML can say what JSON and the database cannot.
func TestWhatCannotBeStoredIsRefused(t *testing.T) {
	for _, more := range []string{
		"cost: {a0_us: .nan, a1_us: 1, b0_us: 1, b1_us: 1, b2_us: 1, error: 0, from: here}\n",
		"cost: {a0_us: .inf, a1_us: 1, b0_us: 1, b1_us: 1, b2_us: 1, error: 0, from: here}\n",
		"speculative: {method: eagle, draft: 1, acceptance: .nan}\n",
		"description: \"a\\0b\"\n",
		"container: \"a\\\\\\0b\"\n",
	} {
		if _, err := Parse([]byte(good + more)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", more, err)
		}
	}
	if _, err := Parse([]byte(good + "description: 'a\\u0000b'\n")); err != nil {
		t.Errorf("a text that only looks like a NUL: %v", err)
	}
}
