package admin

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/web/session"
	"millrace/web/ui"
)

const exceptionsTop = Root + "/exceptions"

func quarantinePath(id ids.ID) string { return Root + "/quarantine/" + ids.Format(ids.Aside, id) }

func waitingText(n int64) string {
	if n == 1 {
		return "1 event waits for a decision"
	}
	return ui.FormatCount(n) + " events wait for a decision"
}

func quarantineGrid(rows []Quarantined) ui.Grid {
	g := ui.Grid{
		Caption: "Quarantine", Cards: true,
		Columns: []ui.Column{{Name: "Request", Mono: true}, {Name: "Why", Wrap: true}, {Name: "Customer"}, {Name: "Model"}, {Name: "Age"}},
		Empty:   ui.Blank{Icon: "check", Title: "Nothing in quarantine", Text: "Usage that cannot be right, for example a billion tokens, is put aside here and never charged."},
	}
	for _, r := range rows {
		g.Rows = append(g.Rows, ui.Row{ui.L(quarantinePath(r.ID), requestText(r.Request)), ui.T(r.Reason), ui.T(orDash(r.OrgName)), ui.T(orDash(r.Model)), ui.Ago(r.At)})
	}
	return g
}

func requestText(id ids.ID) string {
	if id == ids.Nil {
		return "not readable"
	}
	return ids.Format(ids.Request, id)
}

// shortID is enough of an id to tell two apart.
func shortID(id ids.ID) string {
	const digits = 8
	text := ids.Format(ids.Aside, id)
	return "…" + text[len(text)-digits:]
}

func (p *pages) findQuarantined(c echo.Context) (QuarantinedDetail, error) {
	id, err := pathID(c, ids.Aside)
	if err != nil {
		return QuarantinedDetail{}, err
	}
	return p.Read.Quarantined(c.Request().Context(), id)
}

func (p *pages) quarantined(c echo.Context) error {
	x, err := p.findQuarantined(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Event " + shortID(x.ID) + " in quarantine", Head: "Event in quarantine", Path: exceptionsTop, Up: &ui.Link{Href: exceptionsTop, Text: "Exceptions"}, Lead: "Set aside as it was logged. Nothing is charged for it."}
	if x.Decision == "booked" {
		page.Lead = "Set aside as it was logged, and booked later."
	}
	return ui.Render(c, http.StatusOK, quarantinedPage(page, x))
}

// figures are the token counts of the event, by class; none when the gateway did not believe the engine.
func (x QuarantinedDetail) figures() ui.Grid {
	g := ui.Grid{Caption: "Tokens by class, as the gateway logged them", Columns: []ui.Column{{Name: "Class"}, {Name: "Tokens", Num: true}}}
	if x.Usage == usage.Impossible {
		return g
	}
	for class, n := range x.Usage {
		if n != 0 {
			g.Rows = append(g.Rows, ui.Row{ui.T(ui.ClassName(usage.Class(class))), ui.C(n)})
		}
	}
	return g
}

func (x QuarantinedDetail) took() string {
	if x.Started.IsZero() || x.Done.Before(x.Started) {
		return "–"
	}
	text := ui.FormatLatency(x.Done.Sub(x.Started))
	if !x.First.IsZero() {
		text += ", first token after " + ui.FormatLatency(max(0, x.First.Sub(x.Started)))
	}
	return text
}

func (x QuarantinedDetail) ended() string {
	if x.Ending == "" {
		return "–"
	}
	return string(x.Ending) + ", HTTP " + strconv.Itoa(x.Status)
}

func (p *pages) bookForm(c echo.Context) error {
	return p.showBook(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showBook(c echo.Context, status int, f *ui.Form) error {
	x, err := p.findQuarantined(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Book this event", Path: exceptionsTop, Up: &ui.Link{Href: quarantinePath(x.ID), Text: "Event in quarantine"}}
	return ui.Render(c, status, bookPage(page, x, f))
}

func (p *pages) book(c echo.Context) error {
	id, err := pathID(c, ids.Aside)
	if err != nil {
		return err
	}
	f := &ui.Form{}
	if err := p.Write.BookQuarantined(c.Request().Context(), session.Must(c), id); err != nil {
		if !f.Absorb(err) {
			return err
		}
		return p.showBook(c, http.StatusUnprocessableEntity, f)
	}
	return c.Redirect(http.StatusSeeOther, exceptionsTop+"?done=booked")
}

func (p *pages) dismissForm(c echo.Context) error {
	return p.showDismiss(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showDismiss(c echo.Context, status int, f *ui.Form) error {
	x, err := p.findQuarantined(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Dismiss this event", Path: exceptionsTop, Up: &ui.Link{Href: quarantinePath(x.ID), Text: "Event in quarantine"}}
	return ui.Render(c, status, dismissPage(page, x, f))
}

func (p *pages) dismiss(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	id, err := pathID(c, ids.Aside)
	if err != nil {
		return err
	}
	why := readReason(f, "reason", operatorsRead)
	if f.OK() {
		err := p.Write.DismissQuarantined(c.Request().Context(), session.Must(c), id, why)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, exceptionsTop+"?done=dismissed")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showDismiss(c, http.StatusUnprocessableEntity, f)
}
