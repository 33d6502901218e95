package capacity

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/fleet"
	"millrace/serving/recipe"
	"millrace/web/ui"
)

// shown is which hosts the topology shows.
type shown struct{ text, state string }

// path is the page that shows the same hosts.
func (s shown) path() string {
	return Root + "?" + url.Values{"q": {s.text}, "state": {s.state}}.Encode()
}

// title tells pages that show different hosts apart.
func (s shown) title() string {
	title := "Fleet"
	switch s.state {
	case freeOnly:
		title += ", hosts with free GPUs"
	case troubled:
		title += ", hosts with problems"
	}
	if s.text != "" {
		title += ": " + s.text
	}
	return title
}

// The states to filter by.
const (
	anyHost    = ""
	freeOnly   = "free"
	troubled   = "trouble"
	unassigned = "–"
)

func (p *pages) topology(c echo.Context) error {
	o, err := p.Overview(c.Request().Context())
	if err != nil {
		return err
	}
	demands, err := p.Demands(c.Request().Context())
	if err != nil {
		return err
	}
	show := shown{strings.ToLower(strings.TrimSpace(c.QueryParam("q"))), c.QueryParam("state")}
	page := ui.Page{Title: show.title(), Head: "Fleet", Path: Root, Lead: "Every host by its scale-up domain, and what each GPU does.", Events: []string{"hosts", "units"}}
	switch c.QueryParam("done") {
	case "committed":
		page.Toast = "Committed. Units start, and old ones end once new ones serve."
	case "demand":
		page.Toast = "Kept. Nothing moves before a plan is committed."
	}
	return ui.Render(c, http.StatusOK, topologyPage(page, sum(&o), racks(o.Hosts, show), show, demandGrid(demands), unitGrid(o.Units)))
}

// totals are the figures above the grid.
type totals struct {
	hosts, connected, gpus, used, broken int64
	units, serving                       int64
	plan                                 fleet.PlanInfo
	frozen, executor                     string
}

func sum(o *fleet.Overview) (t totals) {
	t.plan, t.frozen, t.executor = o.Plan, o.Frozen, o.Executor
	for i := range o.Hosts {
		h := &o.Hosts[i]
		t.hosts++
		if h.Connected {
			t.connected++
		}
		for _, g := range h.GPUs {
			t.gpus++
			if g.Unit != ids.Nil {
				t.used++
			}
			if g.Broken != "" {
				t.broken++
			}
		}
	}
	for i := range o.Units {
		t.units++
		if o.Units[i].State == fleet.Serving {
			t.serving++
		}
	}
	return t
}

// racks groups the hosts that are shown by provider, region and scale-up domain. Servers that are a domain each stand together.
func racks(hosts []fleet.HostView, show shown) []ui.RackView {
	var out []ui.RackView
	at := map[string]int{}
	for i := range hosts {
		h := &hosts[i]
		if !show.has(h) {
			continue
		}
		domain := domainOf(h)
		key := h.Facts.Provider + " · " + h.Facts.Region
		n, known := at[key+domain]
		if !known {
			n = len(out)
			at[key+domain] = n
			out = append(out, ui.RackView{Name: key + domainName(h, domain)})
		}
		out[n].Hosts = append(out[n].Hosts, hostView(h))
	}
	for i := range out {
		out[i].Note = rackNote(out[i].Hosts)
	}
	slices.SortFunc(out, func(a, b ui.RackView) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// domainOf is the name of the domain that a host shares with others; "" = none.
func domainOf(h *fleet.HostView) string {
	for _, g := range h.GPUs {
		switch g.Domain {
		case "":
		default:
			return g.Domain
		}
	}
	return h.Domain
}

// domainName is how a domain reads: a fabric's UUID is cut short, and the failure domain that a person named stands for it.
func domainName(h *fleet.HostView, domain string) string {
	const long, kept = 20, 8
	switch {
	case domain == "":
		return ""
	case domain == wire.DomainUnknown:
		return " · unknown domain, not planned on"
	case h.Facts.Failure != "":
		return " · " + h.Facts.Failure
	}
	if cluster, clique, found := strings.Cut(domain, "."); len(domain) > long && found && len(cluster) > kept {
		return " · " + cluster[:kept] + "…." + clique
	}
	return " · " + domain
}

func (s shown) has(h *fleet.HostView) bool {
	switch s.state {
	case freeOnly:
		if !h.Connected || h.Cordoned || !slices.ContainsFunc(h.GPUs, func(g fleet.GPUView) bool { return g.Unit == ids.Nil && g.Broken == "" }) {
			return false
		}
	case troubled:
		if h.Connected && !h.Cordoned && !h.Away && len(h.Observed.Problems) == 0 && !slices.ContainsFunc(h.GPUs, func(g fleet.GPUView) bool { return g.Broken != "" }) {
			return false
		}
	}
	if s.text == "" {
		return true
	}
	if strings.Contains(strings.ToLower(h.Name), s.text) {
		return true
	}
	return slices.ContainsFunc(h.GPUs, func(g fleet.GPUView) bool { return strings.Contains(strings.ToLower(g.Name), s.text) })
}

func hostView(h *fleet.HostView) ui.HostView {
	v := ui.HostView{Href: hostPath(h.ID), Name: h.Name, Tone: ui.Quiet}
	switch {
	case !h.Connected:
		v.Tone, v.State = ui.Bad, "lost"
	case h.Draining:
		v.Tone, v.State = ui.Warn, "draining"
	case h.Cordoned:
		v.Tone, v.State = ui.Warn, "cordoned"
	case h.Away:
		v.Tone, v.State = ui.Warn, "maintenance"
	case len(h.Observed.Problems) > 0:
		v.Tone, v.State = ui.Bad, "problem"
	}
	if len(h.GPUs) == 0 {
		v.Note = "CPU only"
	}
	for _, g := range h.GPUs {
		v.GPUs = append(v.GPUs, ui.GPUView{State: gpuState(g), Title: gpuTitle(g)})
	}
	return v
}

func gpuState(g fleet.GPUView) ui.GPUState {
	switch {
	case g.Broken != "":
		return ui.GPUFailed
	case g.Unit == ids.Nil:
		return ui.GPUFree
	case g.State == fleet.Draining:
		return ui.GPUDraining
	case g.State == fleet.Planned, g.State == fleet.Starting, g.State == fleet.Ready:
		return ui.GPUStarting
	case g.State == fleet.Faulted:
		return ui.GPUFailed
	}
	switch g.Role {
	case recipe.Prefill:
		return ui.GPUPrefill
	case recipe.Decode:
		return ui.GPUDecode
	case recipe.Encoder:
		return ui.GPUEncoder
	}
	return ui.GPUUnit
}

func gpuTitle(g fleet.GPUView) string {
	title := "GPU " + strconv.Itoa(g.Index)
	if g.Unit != ids.Nil {
		title += ": " + g.Name
		if g.Role != recipe.Whole {
			title += ", " + g.Role
		}
		title += ", " + g.State
	}
	if g.Broken != "" {
		title += ": " + g.Broken
	}
	return title
}

func rackNote(hosts []ui.HostView) string {
	gpus, free := 0, 0
	for _, h := range hosts {
		for _, g := range h.GPUs {
			gpus++
			if g.State == ui.GPUFree {
				free++
			}
		}
	}
	return fmt.Sprintf("%s, %d of %d GPUs free", ui.Plural(int64(len(hosts)), "host", "hosts"), free, gpus)
}

func stateTone(state string) ui.Tone {
	switch state {
	case fleet.Serving, fleet.Ready:
		return ui.Good
	case fleet.Starting, fleet.Planned:
		return ui.Info
	case fleet.Draining:
		return ui.Warn
	case fleet.Faulted:
		return ui.Bad
	}
	return ui.Quiet
}

func unitGrid(units []fleet.UnitView) ui.Grid {
	g := ui.Grid{Caption: "Units", Cards: true,
		Columns: []ui.Column{{Name: "Unit"}, {Name: "State"}, {Name: "Model"}, {Name: "Recipe"}, {Name: "Engines", Wrap: true}, {Name: "Since"}},
		Empty:   ui.Blank{Icon: "cpu", Title: "No units on hosts", Text: "Say how many units of a recipe a model wants, make a plan, and commit it."}}
	for i := range units {
		u := &units[i]
		name := ui.L(UnitPath(u.ID), u.Name)
		if !u.Planned {
			name = name.WithSub("placed by hand")
		}
		text := u.Text
		switch {
		case u.Leaving != "":
			text = "leaves: " + u.Leaving
		case u.Degraded != "":
			text = "degraded: " + u.Degraded
		}
		g.Rows = append(g.Rows, ui.Row{name, ui.N(ui.Tag(stateTone(u.State), u.State), u.State).WithSub(text), ui.T(u.Model), ui.T(dash(u.Recipe)),
			ui.T(engines(u.Parts)), ui.Ago(u.Since)})
	}
	return g
}

// engines says what a unit runs on: "prefill on rack-a-01 … rack-a-16 (64 GPUs), decode on …".
func engines(parts []fleet.PartView) string {
	var out []string
	for _, role := range []string{recipe.Whole, recipe.Encoder, recipe.Prefill, recipe.Decode} {
		gpus, hosts := 0, []string(nil)
		for i := range parts {
			if parts[i].Role == role {
				gpus += len(parts[i].GPUs)
				if !slices.Contains(hosts, parts[i].HostName) {
					hosts = append(hosts, parts[i].HostName)
				}
			}
		}
		if len(hosts) == 0 {
			continue
		}
		text := hosts[0]
		if len(hosts) > 1 {
			text += " … " + hosts[len(hosts)-1]
		}
		if role != recipe.Whole {
			text = role + " on " + text
		}
		if gpus > 0 {
			text += " (" + ui.Plural(int64(gpus), "GPU", "GPUs") + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func dash(s string) string {
	if s == "" {
		return unassigned
	}
	return s
}

func planLine(p fleet.PlanInfo) string {
	if p.Number == 0 {
		return "no plan was ever committed"
	}
	return "plan " + strconv.FormatInt(p.Number, 10) + " holds"
}
