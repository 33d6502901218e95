package ui

import (
	"context"
	"io"

	"github.com/a-h/templ"
)

// Sentence sets a component inside running text; blanks at its sides are kept, which templ drops between lines.
func Sentence(before string, part templ.Component, after string) templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		if _, err := io.WriteString(w, templ.EscapeString(before)); err != nil {
			return err
		}
		if err := part.Render(ctx, w); err != nil {
			return err
		}
		_, err := io.WriteString(w, templ.EscapeString(after))
		return err
	})
}
