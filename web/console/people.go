package console

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

func (p *pages) members(c echo.Context) error {
	members, err := p.Read.Members(c.Request().Context(), session.Must(c))
	if err != nil {
		return err
	}
	g := ui.Grid{
		Caption: "Members", Cards: true,
		Columns: []ui.Column{{Name: "Person"}, {Name: "Role"}, {Name: "Status"}, {Name: "Joined"}, {Name: "Last seen"}},
		Empty:   ui.Blank{Icon: "users", Title: "No members", Text: "People of your organization are listed here. Your provider can invite them."},
	}
	for _, m := range members {
		name, sub := m.Email, ""
		if m.Name != "" {
			name, sub = m.Name, m.Email
		}
		tone, state := ui.Good, "member"
		if m.Pending {
			tone, state = ui.Info, "invited"
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(name).WithSub(sub), ui.T(m.Role), ui.N(ui.Tag(tone, state), state), ui.At(m.Joined), ui.Ago(m.LastSeen)})
	}
	page := ui.Page{Title: "Members", Path: "/members", Lead: "Who can open this console for your organization, and with which role."}
	return ui.Render(c, http.StatusOK, listPage(page, g, ui.Paging{}, ""))
}

func (p *pages) audit(c echo.Context) error {
	after, u := c.QueryParam("after"), report.AddressOf(c)
	list, err := p.Read.Audit(c.Request().Context(), session.Must(c), after)
	if err != nil {
		return err
	}
	g := ui.AuditGrid(list.Entries, false)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "audit-log", g)
	}
	var paging ui.Paging
	if after != "" {
		paging.First = u.With()
	}
	if list.Next != "" {
		paging.Next = u.With("after", list.Next)
	}
	page := ui.Page{Title: "Audit log", Path: "/audit", Lead: "Every change, written in the same moment it was made. Nothing is edited or removed."}
	return ui.Render(c, http.StatusOK, listPage(page, g, paging, u.With("format", "csv", "after", after)))
}
