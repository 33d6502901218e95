package capacity

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/serving/recipe"
	"millrace/serving/recipe/store"
	"millrace/web/session"
	"millrace/web/ui"
)

func (p *pages) recipes(c echo.Context) error {
	list, err := p.Recipes(c.Request().Context())
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Recipes", Path: Root, Up: &ui.Link{Href: Root, Text: "Fleet"}, Lead: "Tested combinations of engine, model, hardware and flags, with the cost model that was fitted to measurements."}
	switch c.QueryParam("done") {
	case "retired":
		page.Toast = "Retired. It stays in the books and gets no new demands."
	}
	return ui.Render(c, http.StatusOK, recipesPage(page, recipeGrid(list)))
}

func recipeGrid(list []store.Stored) ui.Grid {
	g := ui.Grid{Caption: "Recipes", Cards: true,
		Columns: []ui.Column{{Name: "Recipe"}, {Name: "Engine"}, {Name: "Shape"}, {Name: "GPUs", Num: true}, {Name: "Needs", Wrap: true}, {Name: "Cost model"}, {Name: "Wanted by", Num: true}},
		Empty:   ui.Blank{Icon: "list", Title: "No recipes", Text: "Upload one: it is a YAML file that says engine, model, hardware and flags."}}
	for i := range list {
		s := &list[i]
		name := ui.L(recipePath(s.ID), s.Recipe.Name)
		if s.Retired {
			name = name.WithSub("retired")
		}
		word, tone := costWord(s)
		g.Rows = append(g.Rows, ui.Row{name, ui.T(s.Recipe.Engine).WithSub(s.Recipe.Version), ui.T(shape(s.Recipe)), ui.C(int64(s.Recipe.GPUs())), ui.T(needs(s.Recipe.Hardware)),
			ui.N(ui.Tag(tone, word), word), ui.C(int64(s.Demands))})
	}
	return g
}

// costWord says where a recipe's cost model comes from.
func costWord(s *store.Stored) (string, ui.Tone) {
	switch {
	case s.Measured != nil:
		return fmt.Sprintf("measured, ±%.0f %%", s.Measured.Cost.Error*100), ui.Good
	case s.Recipe.Cost != nil:
		return "estimate", ui.Warn
	}
	return "none", ui.Quiet
}

// shape is how a unit of a recipe looks: "64 P + 64 D", "TP 4".
func shape(r *recipe.Recipe) string {
	var out []string
	for _, p := range r.Pools {
		size := fmt.Sprintf("%d", p.Replicas*p.GPUs)
		switch p.Role {
		case recipe.Prefill:
			size += " P"
		case recipe.Decode:
			size += " D"
		case recipe.Encoder:
			size += " E"
		case recipe.Whole:
			size = parallel(p.Parallel)
		}
		out = append(out, size)
	}
	return strings.Join(out, " + ")
}

func parallel(p recipe.Parallel) string {
	var out []string
	for _, x := range []struct {
		name string
		size int
	}{{"TP", p.Tensor}, {"PP", p.Pipeline}, {"DP", p.Data}, {"EP", p.Expert}} {
		if x.size > 1 {
			out = append(out, fmt.Sprintf("%s %d", x.name, x.size))
		}
	}
	if len(out) == 0 {
		return "one engine"
	}
	return strings.Join(out, " ")
}

func needs(floors []recipe.Floor) string {
	var out []string
	for _, f := range floors {
		text := strings.Join(f.Arch, " or ")
		if f.MemoryGiB > 0 {
			text += fmt.Sprintf(", %d GiB", f.MemoryGiB)
		}
		for _, tool := range []string{"nvidia_driver", "cuda", "ascend_driver", "cann"} {
			if v := f.Toolchain[tool]; v != "" {
				text += ", " + tool + " " + v
			}
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return "any machine"
	}
	return strings.Join(out, "; or ")
}

func (p *pages) recipe(c echo.Context) error {
	id, err := pathID(c, "id", ids.Recipe)
	if err != nil {
		return err
	}
	s, measured, err := p.Recipe(c.Request().Context(), id)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Recipe " + s.Recipe.Name, Head: s.Recipe.Name, Path: Root, Up: &ui.Link{Href: recipesTop, Text: "Recipes"}, Lead: s.Recipe.Description}
	if c.QueryParam("done") == "added" {
		page.Toast = "Stored."
	}
	return ui.Render(c, http.StatusOK, recipePage(page, s, measuredGrid(measured)))
}

func measuredGrid(list []store.Measurement) ui.Grid {
	g := ui.Grid{Caption: "Measurements, newest first; the newest counts", Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "Hardware"}, {Name: "Prefill of s tokens"}, {Name: "Step of n requests"}, {Name: "Error", Num: true}, {Name: "By"}, {Name: "From", Wrap: true}},
		Empty:   ui.Blank{Icon: "gauge", Title: "Never measured", Text: "Run millrace bench recipe against an engine of this recipe; docs/recipes.md says how."}}
	for _, m := range list {
		g.Rows = append(g.Rows, ui.Row{ui.At(m.At), ui.T(dash(m.Hardware)), ui.T(prefillText(&m.Cost)), ui.T(stepText(&m.Cost)), ui.T(fmt.Sprintf("%.1f %%", m.Cost.Error*100)), ui.T(m.By), ui.T(m.Cost.From)})
	}
	return g
}

func prefillText(c *recipe.Cost) string {
	return fmt.Sprintf("%.1f ms + %.3g µs · s", c.A0/1e3, c.A1)
}

func stepText(c *recipe.Cost) string {
	return fmt.Sprintf("%.1f ms + %.3g µs · n + %.3g µs · cached tokens", c.B0/1e3, c.B1, c.B2)
}

func (p *pages) recipeForm(c echo.Context) error {
	return p.showRecipeForm(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showRecipeForm(c echo.Context, status int, f *ui.Form) error {
	page := ui.Page{Title: "Upload a recipe", Path: Root, Up: &ui.Link{Href: recipesTop, Text: "Recipes"}, Lead: "YAML, read strictly: an unknown member is an error that names the line. docs/recipes.md has the members."}
	return ui.Render(c, status, recipeFormPage(page, f))
}

func (p *pages) addRecipe(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	id, err := p.AddRecipe(c.Request().Context(), session.Must(c), strings.ReplaceAll(f.Values.Get("text"), "\r\n", "\n"))
	if err == nil {
		return c.Redirect(http.StatusSeeOther, recipePath(id)+"?done=added")
	}
	if !f.Absorb(err) {
		return err
	}
	return p.showRecipeForm(c, http.StatusUnprocessableEntity, f)
}

func (p *pages) retireRecipe(c echo.Context) error {
	id, err := pathID(c, "id", ids.Recipe)
	if err != nil {
		return err
	}
	if err := p.RetireRecipe(c.Request().Context(), session.Must(c), id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, recipesTop+"?done=retired")
}
