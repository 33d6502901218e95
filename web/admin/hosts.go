package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/web/session"
	"millrace/web/ui"
)

const hostsTop = Root + "/hosts"

func hostPath(id ids.ID) string { return hostsTop + "/" + ids.Format(ids.Host, id) }

func (p *pages) hosts(c echo.Context) error {
	hosts, err := p.Read.Hosts(c.Request().Context())
	if err != nil {
		return err
	}
	g := hostGrid(hosts)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "hosts", g)
	}
	page := ui.Page{Title: "Hosts", Path: hostsTop, Lead: "Machines that run the agent. They dial out; nothing has to reach them.", Events: []string{"hosts", "units"}}
	return ui.Render(c, http.StatusOK, hostsPage(page, racks(hosts), g))
}

func hostGrid(hosts []Host) ui.Grid {
	g := ui.Grid{
		Caption: "Hosts", Cards: true,
		Columns: []ui.Column{{Name: "Host"}, {Name: "State"}, {Name: "Accelerators"}, {Name: "Units", Wrap: true}, {Name: "Agent", Mono: true}, {Name: "Last seen"}},
		Empty:   ui.Blank{Icon: "server", Title: "No hosts yet", Text: "Join a machine with GPUs: it needs one command. The token in it works once; the host then has an identity of its own."},
	}
	for _, h := range hosts {
		state := ui.N(ui.Tag(h.State.tone(), string(h.State)), string(h.State))
		g.Rows = append(g.Rows, ui.Row{
			ui.L(hostPath(h.ID), h.Name).WithSub(h.Group), state.WithSub(h.Note), h.hardwareCell(),
			ui.T(strings.Join(h.Units, ", ")), ui.T(h.Agent), ui.Ago(h.LastSeen),
		})
	}
	return g
}

// accelerators says what a host has: "8 × NVIDIA H200".
func (h Host) accelerators() string {
	if len(h.GPUs) == 0 {
		return "CPU only"
	}
	return strconv.Itoa(len(h.GPUs)) + " × " + h.GPUs[0].Name
}

func (h Host) hardwareCell() ui.Cell {
	if h.Simulated {
		return ui.N(hardware(h), h.accelerators()+" (simulated engines or hardware)").WithSub(h.CPU)
	}
	return ui.T(h.accelerators()).WithSub(h.CPU)
}

// racks groups hosts for the drawing, in the order they come.
func racks(hosts []Host) []ui.RackView {
	var out []ui.RackView
	for _, h := range hosts {
		i := slices.IndexFunc(out, func(r ui.RackView) bool { return r.Name == h.Group })
		if i < 0 {
			out, i = append(out, ui.RackView{Name: h.Group}), len(out)
		}
		v := ui.HostView{Href: hostPath(h.ID), Name: h.Name, Tone: h.State.tone(), State: string(h.State)}
		if h.State == HostConnected {
			v.Tone, v.State = ui.Quiet, "" // the usual is quiet
		}
		if len(h.GPUs) == 0 {
			v.Note = "CPU only"
		}
		if h.Simulated {
			v.Note = "simulated engines or hardware"
		}
		for _, x := range h.GPUs {
			title := "GPU " + strconv.Itoa(x.Index)
			if x.Unit != "" {
				title += ": " + x.Unit
			}
			v.GPUs = append(v.GPUs, ui.GPUView{State: x.State, Title: title})
		}
		out[i].Hosts = append(out[i].Hosts, v)
	}
	for i := range out {
		out[i].Note = rackNote(out[i])
	}
	return out
}

func rackNote(r ui.RackView) string {
	gpus, free := 0, 0
	for _, h := range r.Hosts {
		for _, g := range h.GPUs {
			gpus++
			if g.State == ui.GPUFree {
				free++
			}
		}
	}
	if gpus == 0 {
		return ""
	}
	return strconv.Itoa(gpus) + " GPUs, " + strconv.Itoa(free) + " free"
}

func (p *pages) host(c echo.Context) error {
	id, err := pathID(c, ids.Host)
	if err != nil {
		return err
	}
	h, err := p.Read.Host(c.Request().Context(), id)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Host " + h.Name, Head: h.Name, Path: hostsTop, Up: &ui.Link{Href: hostsTop, Text: "Hosts"}, Lead: h.Group, Events: []string{"hosts", "units"}}
	return ui.Render(c, http.StatusOK, hostPage(page, h, hostPath(id)))
}

func (h Host) gpuGrid() ui.Grid {
	g := ui.Grid{Caption: "Accelerators", Cards: true, Columns: []ui.Column{{Name: "GPU"}, {Name: "Kind"}, {Name: "State"}, {Name: "Unit"}},
		Empty: ui.Blank{Icon: "cpu", Title: "No accelerators", Text: "The agent found none. Engines on this host run on the CPU."}}
	for _, x := range h.GPUs {
		unit := x.Unit
		if unit == "" {
			unit = "–"
		}
		word := x.State.Word()
		g.Rows = append(g.Rows, ui.Row{ui.T(strconv.Itoa(x.Index)), ui.T(x.Name), ui.N(ui.Tag(gpuTone(x.State), word), word), ui.T(unit)})
	}
	return g
}

func gpuTone(s ui.GPUState) ui.Tone {
	switch s {
	case ui.GPUFree:
		return ui.Quiet
	case ui.GPUDraining:
		return ui.Warn
	case ui.GPUFailed:
		return ui.Bad
	}
	return ui.Good
}

// memoryText is bytes as GiB.
func memoryText(bytes int64) string {
	const gib = 1 << 30
	if bytes <= 0 {
		return "–"
	}
	return strconv.FormatInt((bytes+gib/2)/gib, 10) + " GiB"
}

func (p *pages) joinForm(c echo.Context) error { return p.showJoin(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showJoin(c echo.Context, status int, f *ui.Form) error {
	page := ui.Page{Title: "Join a host", Path: hostsTop, Up: &ui.Link{Href: hostsTop, Text: "Hosts"}, Lead: "Makes a command to run on the machine. The token in it works once."}
	return ui.Render(c, status, joinForm(page, f))
}

// join shows the token in the answer itself: it is never in an address or a cache.
func (p *pages) join(c echo.Context) error {
	ui.NoStore(c)
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	j, err := p.Write.JoinToken(c.Request().Context(), session.Must(c), f.Get("name"))
	if err != nil && f.Absorb(err) {
		return p.showJoin(c, http.StatusUnprocessableEntity, f)
	}
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Join a host", Path: hostsTop, Up: &ui.Link{Href: hostsTop, Text: "Hosts"}, Lead: "Run this on the new machine. The token in it works once."}
	return ui.Render(c, http.StatusOK, joinPage(page, j))
}
