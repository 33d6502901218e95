package recipe

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"millrace/internal/fault"
)

// Parse reads a recipe's YAML and checks it. Errors are faults of kind Invalid that name the member.
func Parse(text []byte) (*Recipe, error) {
	if len(text) > MaxBytes {
		return nil, fault.New(fault.Invalid, "A recipe has at most %d KiB.", MaxBytes>>10).WithCode("recipe_too_large")
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true) // a misspelt flag that is ignored would be found on the GPUs
	var r Recipe
	if err := dec.Decode(&r); err != nil {
		return nil, unreadable(err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "Give one recipe a file: there is more after its end.").WithCode(badRecipe)
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	r.fill()
	return &r, nil
}

// Reread reads a text that was good when it was stored. It is taken as it is: a rule or a member that came or went since must
// not keep what runs by it from being seen.
func Reread(text []byte) (*Recipe, error) {
	var r Recipe
	if err := yaml.Unmarshal(text, &r); err != nil {
		return nil, unreadable(err)
	}
	r.fill()
	return &r, nil
}

const badRecipe = "invalid_recipe"

// unreadable says where the text is no recipe, in the words of the YAML reader, which name the line.
func unreadable(err error) error {
	if errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "The recipe is empty.").WithCode(badRecipe)
	}
	var types *yaml.TypeError
	if errors.As(err, &types) && len(types.Errors) > 0 {
		return fault.New(fault.Invalid, "This is not a recipe: %s.", types.Errors[0]).WithCode(badRecipe)
	}
	return fault.New(fault.Invalid, "This is not YAML: %s.", err).WithCode(badRecipe)
}

// fill puts in what may be left out.
func (r *Recipe) fill() {
	for i := range r.Pools {
		p := &r.Pools[i]
		p.Replicas = max(p.Replicas, 1)
		if p.Domain == 0 {
			p.Domain = p.GPUs
		}
	}
}

// YAML is the recipe's text in its one form.
func (r *Recipe) YAML() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(r); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// Digest is the recipe's identity: of what it says, not of how it is written. What was measured is not part of it, so a
// better fit of the same combination is no other recipe.
func (r *Recipe) Digest() string {
	said := *r
	said.Cost, said.Description, said.Golden = nil, "", nil
	text, err := json.Marshal(said)
	if err != nil {
		panic("recipe: " + err.Error()) // strings, numbers and maps of them: cannot fail
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Pool finds the pool of a role.
func (r *Recipe) Pool(role string) (*Pool, bool) {
	for i := range r.Pools {
		if r.Pools[i].Role == role {
			return &r.Pools[i], true
		}
	}
	return nil, false
}

// GPUs is how many a unit takes.
func (r *Recipe) GPUs() (n int) {
	for _, p := range r.Pools {
		n += max(p.Replicas, 1) * p.GPUs
	}
	return n
}
