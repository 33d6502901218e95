package capacity

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/serving/fleet"
	"millrace/serving/plan"
	"millrace/web/session"
	"millrace/web/ui"
)

func demandGrid(list []fleet.Demand) ui.Grid {
	g := ui.Grid{Caption: "What models want", Cards: true,
		Columns: []ui.Column{{Name: "Model"}, {Name: "Recipe"}, {Name: "Units", Num: true}, {Name: "GPUs a unit", Num: true}, {Name: "Capacity"}, {Name: "Regions"}, {Name: "Changed by", Less: true}, {Name: "Actions", Hide: true}},
		Empty:   ui.Blank{Icon: "list", Title: "No demands", Text: "Say how many units of a recipe a model wants. Nothing moves before a plan for it is committed."}}
	for _, d := range list {
		kinds, regions := strings.Join(d.Kinds, ", "), strings.Join(d.Regions, ", ")
		if kinds == "" {
			kinds = "any"
		}
		if regions == "" {
			regions = "any"
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(d.Model), ui.L(recipePath(d.RecipeID), d.Recipe), ui.C(int64(d.Units)), ui.C(int64(d.GPUsOfUnit)), ui.T(kinds), ui.T(regions),
			ui.T(d.UpdatedBy), ui.N(demandActions(d), "")})
	}
	return g
}

func (p *pages) demandForm(c echo.Context) error {
	f := &ui.Form{Values: c.QueryParams()}
	return p.showDemand(c, http.StatusOK, f)
}

func (p *pages) showDemand(c echo.Context, status int, f *ui.Form) error {
	ctx := c.Request().Context()
	models, err := p.ModelNames(ctx)
	if err != nil {
		return err
	}
	list, err := p.Recipes(ctx)
	if err != nil {
		return err
	}
	var recipes []ui.Option
	for _, r := range list {
		if !r.Retired {
			recipes = append(recipes, ui.Option{Value: ids.Format(ids.Recipe, r.ID), Text: r.Recipe.Name + " (" + r.Recipe.Engine + " " + r.Recipe.Version + ", " + ui.Plural(int64(r.Recipe.GPUs()), "GPU", "GPUs") + ")"})
		}
	}
	names := make([]ui.Option, len(models))
	for i, m := range models {
		names[i] = ui.Option{Value: ids.Format(ids.Model, m.ID), Text: m.Name}
	}
	page := ui.Page{Title: "Set a demand", Path: Root, Up: &ui.Link{Href: Root, Text: "Fleet"}, Lead: "How many units of a recipe a model wants. Nothing moves before a plan for it is committed."}
	return ui.Render(c, status, demandPage(page, f, names, recipes))
}

func (p *pages) setDemand(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	in := fleet.DemandInput{Regions: strings.Fields(strings.ReplaceAll(f.Get("regions"), ",", " ")), Spread: f.Get("spread") == "yes"}
	if in.Model, err = ids.Parse(ids.Model, f.Get("model")); err != nil {
		f.Fail("model", "Choose a model.")
	}
	if in.Recipe, err = ids.Parse(ids.Recipe, f.Get("recipe")); err != nil {
		f.Fail("recipe", "Choose a recipe.")
	}
	if in.Units, err = strconv.Atoi(f.Get("units")); err != nil {
		f.Fail("units", "Give a number of units.")
	}
	if w := f.Get("weight"); w != "" {
		if in.Weight, err = strconv.Atoi(w); err != nil {
			f.Fail("weight", "Give a whole number.")
		}
	}
	if k := f.Get("kinds"); k != "" {
		in.Kinds = strings.Split(k, ",")
	}
	if f.OK() {
		err := p.SetDemand(c.Request().Context(), session.Must(c), in)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, Root+"?done=demand")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showDemand(c, http.StatusUnprocessableEntity, f)
}

// kindOptions are the choices of capacity, the steadiest first.
var kindOptions = []ui.Option{
	{Value: "", Text: "Reserved first, then on demand, then spot"},
	{Value: plan.Reserved, Text: "Reserved only"},
	{Value: plan.Reserved + "," + plan.OnDemand, Text: "Reserved and on demand"},
	{Value: plan.Spot, Text: "Spot only"},
}

func (p *pages) removeForm(c echo.Context) error {
	d, err := p.findDemand(c, c.QueryParam("model"), c.QueryParam("recipe"))
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Take a demand away", Path: Root, Up: &ui.Link{Href: Root, Text: "Fleet"}}
	return ui.Render(c, http.StatusOK, removePage(page, d))
}

func (p *pages) findDemand(c echo.Context, model, recipe string) (fleet.Demand, error) {
	list, err := p.Demands(c.Request().Context())
	if err != nil {
		return fleet.Demand{}, err
	}
	for _, d := range list {
		if ids.Format(ids.Model, d.ModelID) == model && ids.Format(ids.Recipe, d.RecipeID) == recipe {
			return d, nil
		}
	}
	return fleet.Demand{}, errMissing()
}

func (p *pages) removeDemand(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	d, err := p.findDemand(c, f.Get("model"), f.Get("recipe"))
	if err != nil {
		return err
	}
	if err := p.RemoveDemand(c.Request().Context(), session.Must(c), d.ModelID, d.RecipeID); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, Root+"?done=demand")
}
