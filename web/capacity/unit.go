package capacity

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"millrace/agents/wire"
	"millrace/billing/report"
	"millrace/internal/ids"
	"millrace/serving/fleet"
	"millrace/serving/recipe"
	"millrace/web/ui"
)

func (p *pages) unit(c echo.Context) error {
	ctx := c.Request().Context()
	id, err := pathID(c, "id", ids.Unit)
	if err != nil {
		return err
	}
	u, events, err := p.PlacedUnit(ctx, id)
	if err != nil {
		return err
	}
	loads, err := p.Loads(ctx)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Engines of " + u.Name, Head: u.Name, Path: Root, Up: &ui.Link{Href: Root, Text: "Fleet"}, Lead: engines(u.Parts), Events: []string{"units"}}
	traffic, err := p.Traffic(ctx)
	if err != nil {
		return err
	}
	return ui.Render(c, http.StatusOK, unitPage(page, u, partGrid(u.ID, u.Parts, loads), trafficGrid(u.Parts, traffic), eventGrid(events)))
}

// log shows the end of one engine's log. It may hold what customers wrote: reading it is in the audit log.
func (p *pages) log(c echo.Context) error {
	ctx := c.Request().Context()
	id, err := pathID(c, "id", ids.Unit)
	if err != nil {
		return err
	}
	engine, err := pathID(c, "engine", ids.Unit)
	if err != nil {
		return err
	}
	u, _, err := p.PlacedUnit(ctx, id)
	if err != nil {
		return err
	}
	for i := range u.Parts {
		if x := &u.Parts[i]; x.ID == engine {
			ui.NoStore(c)
			text, err := p.EngineLog(ctx, x.Host, engine)
			if err != nil {
				return err
			}
			page := ui.Page{Title: "Log of " + partName(x), Path: Root, Up: &ui.Link{Href: UnitPath(id), Text: u.Name}, Lead: "The last lines on " + x.HostName + ". Who reads them is in the audit log: they may hold what customers wrote."}
			return ui.Render(c, http.StatusOK, logPage(page, text))
		}
	}
	return errMissing()
}

// partName says which engine of a unit it is.
func partName(x *fleet.PartView) string {
	name := x.Role + " " + strconv.Itoa(x.Replica+1)
	if x.Role == recipe.Whole {
		name = "engine " + strconv.Itoa(x.Replica+1)
	}
	if x.Shard > 0 {
		name += ", rank " + strconv.Itoa(x.Shard)
	}
	return name
}

// trafficGrid is how fast each engine that answers was in the last minutes.
func trafficGrid(parts []fleet.PartView, traffic map[ids.ID]report.UnitTraffic) ui.Grid {
	g := ui.Grid{Caption: "Answers of the last 5 minutes", Cards: true, Columns: []ui.Column{{Name: "Engine"}, {Name: "Requests", Num: true}, {Name: "Failed", Num: true}, {Name: "First token", Num: true},
		{Name: "Between tokens", Num: true}, {Name: "Cached share", Num: true}}}
	for i := range parts {
		t, found := traffic[parts[i].ID]
		if !found {
			continue
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(partName(&parts[i])), ui.C(t.Requests), ui.T(ui.FormatShare(t.Errors, t.Requests)), quantiles(t.First), quantiles(t.Token), ui.T(ui.FormatShare(t.Cached, t.Prompt))})
	}
	return g
}

func quantiles(q report.Quantiles) ui.Cell {
	return ui.T(ui.FormatLatency(q.P50)).WithSub("95 % within " + ui.FormatLatency(q.P95))
}

// partGrid is a line an engine process: where it runs, how it is, and what it has to do.
func partGrid(unit ids.ID, parts []fleet.PartView, loads map[ids.ID]wire.Load) ui.Grid {
	g := ui.Grid{Caption: "Engines", Cards: true, Columns: []ui.Column{{Name: "Engine"}, {Name: "State"}, {Name: "Host"}, {Name: "Running", Num: true}, {Name: "Waiting", Num: true},
		{Name: "KV cache", Num: true}, {Name: "Cached share", Num: true}, {Name: "GPUs", Less: true}, {Name: "Log", Hide: true}},
		Empty: ui.Blank{Icon: "cpu", Title: "No engines", Text: "It has none yet."}}
	for i := range parts {
		x := &parts[i]
		cell := ui.T(partName(x))
		if x.Expert > 0 {
			cell = cell.WithSub("EP " + strconv.Itoa(x.Expert))
		}
		row := ui.Row{cell, ui.N(ui.Tag(stateTone(x.State), x.State), x.State).WithSub(trouble(x)), ui.L(hostPath(x.Host), x.HostName)}
		if l, heard := loads[x.ID]; heard {
			row = append(row, ui.C(int64(l.Running)), ui.C(int64(l.Waiting)), ui.T(fmt.Sprintf("%.0f %%", l.KVUsage*100)), ui.T(ui.FormatShare(l.CacheHits, l.CacheQueries)))
		} else {
			row = append(row, ui.T(unassigned), ui.T(unassigned), ui.T(unassigned), ui.T(unassigned))
		}
		g.Rows = append(g.Rows, append(row, ui.T(gpuList(x.GPUs)), ui.L(UnitPath(unit)+"/log/"+ids.Format(ids.Unit, x.ID), "Log")))
	}
	return g
}

func trouble(x *fleet.PartView) string {
	for _, text := range []string{x.Trouble, x.Message, x.Text} {
		if text != "" {
			return text
		}
	}
	return ""
}

// gpuList is indexes as a person writes them: "0–3, 6".
func gpuList(gpus []int) string {
	text := ""
	for i := 0; i < len(gpus); {
		j := i
		for j+1 < len(gpus) && gpus[j+1] == gpus[j]+1 {
			j++
		}
		if text != "" {
			text += ", "
		}
		text += strconv.Itoa(gpus[i])
		if j > i {
			text += "–" + strconv.Itoa(gpus[j])
		}
		i = j + 1
	}
	return dash(text)
}

func eventGrid(events []fleet.Event) ui.Grid {
	g := ui.Grid{Caption: "What became of it, newest first", Cards: true, Columns: []ui.Column{{Name: "When"}, {Name: "State"}, {Name: "Why", Wrap: true}}}
	for _, e := range events {
		g.Rows = append(g.Rows, ui.Row{ui.At(e.At), ui.N(ui.Tag(stateTone(e.State), e.State), e.State), ui.T(e.Text)})
	}
	return g
}
