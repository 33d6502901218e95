package recipe

import (
	"embed"
	"fmt"
	"path"
)

//go:embed catalogue/*.yaml
var files embed.FS

// Starter gives the recipes that come with Millrace, by file name. Their cost models are estimates until somebody has
// measured: each says so in cost.from.
func Starter() ([]*Recipe, error) {
	entries, err := files.ReadDir("catalogue")
	if err != nil {
		return nil, err
	}
	all := make([]*Recipe, 0, len(entries))
	for _, e := range entries {
		text, err := files.ReadFile(path.Join("catalogue", e.Name()))
		if err != nil {
			return nil, err
		}
		r, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("recipe: %s: %w", e.Name(), err)
		}
		all = append(all, r)
	}
	return all, nil
}
