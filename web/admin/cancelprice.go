package admin

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/session"
	"millrace/web/ui"
)

// cancelNotice is how long before its start a price can be cancelled, by the domain's rule; the page offers it no longer.
const cancelNotice = time.Minute

func cancelPath(model, version ids.ID) string {
	return modelPath(model) + "/versions/" + ids.Format(ids.Price, version) + "/cancel"
}

// canCancel reports whether a version lies far enough ahead.
func (v PriceVersion) canCancel(now time.Time) bool { return v.Effective.Sub(now) > cancelNotice }

// findAhead is the version of the path, and its model.
func (p *pages) findAhead(c echo.Context) (m ModelDetail, v PriceVersion, err error) {
	id, err := pathID(c, ids.Model)
	if err != nil {
		return m, v, err
	}
	version, err := ids.Parse(ids.Price, c.Param("version"))
	if err != nil {
		return m, v, fault.New(fault.NotFound, "There is nothing with this id.").WithCause(err)
	}
	if m, err = p.Read.Model(c.Request().Context(), id); err != nil {
		return m, v, err
	}
	for _, v := range m.Versions {
		if v.ID != version {
			continue
		}
		if !v.canCancel(p.Clock.Now()) {
			return m, v, fault.New(fault.Conflict, "This price is in force, or begins within a minute: gateways may use it. Publish a new version instead.")
		}
		return m, v, nil
	}
	return m, v, fault.New(fault.NotFound, "There is no such price version, or it was cancelled.")
}

func (p *pages) confirmCancel(c echo.Context) error {
	m, v, err := p.findAhead(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Cancel a price of " + m.Name, Path: modelsTop, Up: &ui.Link{Href: modelPath(m.ID), Text: m.Name}}
	return ui.Render(c, http.StatusOK, cancelPage(page, m, v))
}

func (p *pages) cancelPrice(c echo.Context) error {
	m, v, err := p.findAhead(c)
	if err != nil {
		return err
	}
	if err := p.Write.CancelPrice(c.Request().Context(), session.Must(c), v.ID); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, modelPath(m.ID)+"?done=cancelled")
}
