package capacity

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/serving/fleet"
	"millrace/serving/plan"
	"millrace/web/session"
	"millrace/web/ui"
)

const plansShown = 50

func (p *pages) plans(c echo.Context) error {
	before, _ := strconv.ParseInt(c.QueryParam("before"), 10, 64) // nonsense begins with the newest
	list, err := p.Plans(c.Request().Context(), before, plansShown)
	if err != nil {
		return err
	}
	paging := ui.Paging{}
	if len(list) == plansShown {
		paging.Next = plansTop + "?before=" + strconv.FormatInt(list[len(list)-1].Number, 10)
	}
	page := ui.Page{Title: "Plans", Path: Root, Up: &ui.Link{Href: Root, Text: "Fleet"}, Lead: "A plan says which GPUs each unit gets. It never changes; a newer one follows it, and nothing moves before it is committed."}
	return ui.Render(c, http.StatusOK, plansPage(page, planGrid(list), paging))
}

func planGrid(list []fleet.PlanInfo) ui.Grid {
	g := ui.Grid{Caption: "Plans, newest first", Cards: true,
		Columns: []ui.Column{{Name: "Plan"}, {Name: "State"}, {Name: "Units", Num: true}, {Name: "Moves", Num: true}, {Name: "Not placed", Num: true}, {Name: "Made by"}, {Name: "When"}, {Name: "Note", Wrap: true}},
		Empty:   ui.Blank{Icon: "list", Title: "No plans yet", Text: "Say what models want, then make a plan: it is shown as a list of moves before anything happens."}}
	for _, x := range list {
		by := ui.T(x.CreatedBy)
		if x.CommittedBy != "" {
			by = by.WithSub("committed by " + x.CommittedBy)
		}
		g.Rows = append(g.Rows, ui.Row{ui.L(planPath(x.ID), "Plan "+strconv.FormatInt(x.Number, 10)), ui.N(planTag(x.State), x.State), ui.C(int64(x.Units)), ui.C(int64(x.Moves)),
			ui.C(int64(x.Unmet)), by, ui.Ago(x.CreatedAt), ui.T(x.Note)})
	}
	return g
}

func (p *pages) draftPlan(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	id, err := p.DraftPlan(c.Request().Context(), session.Must(c), f.Get("note"))
	if err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, planPath(id))
}

func (p *pages) plan(c echo.Context) error {
	id, err := pathID(c, "id", ids.Plan)
	if err != nil {
		return err
	}
	v, err := p.Plan(c.Request().Context(), id)
	if err != nil {
		return err
	}
	n := strconv.FormatInt(v.Number, 10)
	page := ui.Page{Title: "Plan " + n, Path: Root, Up: &ui.Link{Href: plansTop, Text: "Plans"}, Lead: planLead(&v)}
	return ui.Render(c, http.StatusOK, planPage(page, v, moveGrid(&v), unmetGrid(v.Body.Unmet), placedGrid(&v)))
}

func planLead(v *fleet.PlanView) string {
	after := "It follows nothing: it is the first."
	if v.Parent > 0 {
		after = fmt.Sprintf("It follows plan %d.", v.Parent)
	}
	if v.Cause == fleet.ByRepair {
		after += " The fleet made it by itself, to replace what was lost."
	}
	return after
}

// moveWords are the kinds of moves as a diff shows them: a sign, a word and a tone.
var moveWords = map[string]struct {
	sign, word string
	tone       ui.Tone
}{
	plan.MoveAdd:     {"+", "start", ui.Good},
	plan.MoveRemove:  {"−", "stop", ui.Bad},
	plan.MoveReplace: {"⇄", "replace", ui.Warn},
	plan.MoveKeep:    {"=", "keep", ui.Quiet},
	plan.MoveRefuse:  {"!", "not placed", ui.Bad},
}

// moveGrid is the difference to the plan before, what changes first.
func moveGrid(v *fleet.PlanView) ui.Grid {
	names := map[ids.ID]string{}
	for _, list := range [][]plan.Unit{v.Before.Units, v.Body.Units} {
		for i := range list {
			names[list[i].ID] = list[i].Name
		}
	}
	g := ui.Grid{Caption: "Moves", Cards: true, Columns: []ui.Column{{Name: "Move"}, {Name: "Unit"}, {Name: "Why", Wrap: true}},
		Empty: ui.Blank{Icon: "check", Title: "Nothing moves", Text: "The fleet is already as this plan wants it."}}
	for _, last := range []bool{false, true} {
		for _, m := range v.Body.Moves {
			if (m.Kind == plan.MoveKeep) != last {
				continue
			}
			w := moveWords[m.Kind]
			word := w.sign + " " + w.word
			unit := ui.T(dash(names[m.Unit]))
			g.Rows = append(g.Rows, ui.Row{ui.N(ui.Tag(w.tone, word), m.Kind), unit, ui.T(m.Text)})
		}
	}
	return g
}

func unmetGrid(list []plan.Unmet) ui.Grid {
	g := ui.Grid{Caption: "What could not be placed", Cards: true, Columns: []ui.Column{{Name: "Model"}, {Name: "Units", Num: true}, {Name: "Why not", Wrap: true}}}
	for _, u := range list {
		for i, reason := range u.Reasons {
			row := ui.Row{ui.T(u.Name), ui.T(""), ui.T(reason)}
			if i == 0 {
				row[1] = ui.C(int64(u.Units))
			}
			g.Rows = append(g.Rows, row)
		}
	}
	return g
}

// placedGrid is the whole plan: what each unit gets.
func placedGrid(v *fleet.PlanView) ui.Grid {
	g := ui.Grid{Caption: "Units of the plan", Cards: true, Columns: []ui.Column{{Name: "Unit"}, {Name: "Pool"}, {Name: "Where", Wrap: true}, {Name: "GPUs", Num: true}, {Name: "Why here", Wrap: true}},
		Empty: ui.Blank{Icon: "cpu", Title: "No units", Text: "This plan wants none."}}
	for i := range v.Body.Units {
		u := &v.Body.Units[i]
		for n, pool := range u.Pools {
			where, gpus := []string(nil), 0
			for _, r := range pool.Replicas {
				where = append(where, shardsText(v.Hosts, r.Shards))
				for _, s := range r.Shards {
					gpus += len(s.GPUs)
				}
			}
			row := ui.Row{ui.T(u.Name), ui.T(pool.Role), ui.T(strings.Join(where, "; ")), ui.C(int64(gpus)), ui.T("")}
			if n == 0 {
				row[0], row[4] = ui.L(UnitPath(u.ID), u.Name).WithSub(u.Ends), ui.T(u.Why)
			}
			g.Rows = append(g.Rows, row)
		}
	}
	return g
}

// shardsText is where a replica runs: hosts of a rack that give the same GPUs are said together.
func shardsText(names map[ids.ID]string, shards []plan.Shard) string {
	var out []string
	for i := 0; i < len(shards); {
		j := i
		for j+1 < len(shards) && slices.Equal(shards[j+1].GPUs, shards[i].GPUs) {
			j++
		}
		hosts := hostName(names, shards[i].Host)
		switch {
		case j == i+1:
			hosts += " and " + hostName(names, shards[j].Host)
		case j > i+1:
			hosts = fmt.Sprintf("%d hosts, %s … %s,", j-i+1, hosts, hostName(names, shards[j].Host))
		}
		out = append(out, hosts+" GPU "+gpuList(shards[i].GPUs))
		i = j + 1
	}
	return strings.Join(out, "; ")
}

func hostName(names map[ids.ID]string, id ids.ID) string {
	if n := names[id]; n != "" {
		return n
	}
	return "a host that is gone"
}

func (p *pages) commitPlan(c echo.Context) error {
	id, err := pathID(c, "id", ids.Plan)
	if err != nil {
		return err
	}
	if err := p.CommitPlan(c.Request().Context(), session.Must(c), id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, Root+"?done=committed")
}

func planTag(state string) templ.Component {
	switch state {
	case fleet.Committed:
		return ui.Tag(ui.Good, "holds")
	case fleet.Draft:
		return ui.Tag(ui.Info, state)
	}
	return ui.Tag(ui.Quiet, state)
}
