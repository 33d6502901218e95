package report

import (
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/download"
	"millrace/internal/fault"
	"millrace/web/ui"
)

// Export asks for a file of rows.
type Export struct {
	Kind     string // usage, costs, revenue or months
	Format   string // csv, jsonl or parquet
	From, To time.Time
}

// File is a file to download. Write makes it; it may be of any length.
type File struct {
	Name  string
	Write func(w io.Writer) error
}

// ExportOf reads what a form of downloads asks for; days are whole ones of the zone.
func ExportOf(c echo.Context, zone *time.Location) (x Export, err error) {
	from, errFrom := time.ParseInLocation(DateLayout, c.QueryParam("from"), zone)
	to, errTo := time.ParseInLocation(DateLayout, c.QueryParam("to"), zone)
	if errFrom != nil || errTo != nil || to.Before(from) {
		return x, fault.New(fault.Invalid, "Give the first and the last day of the range.").WithParam("from")
	}
	return Export{Kind: c.QueryParam("kind"), Format: c.QueryParam("as"), From: startOf(from, 0, zone).UTC(), To: startOf(to, 1, zone).UTC()}, nil
}

// Send answers with a file.
func Send(c echo.Context, f File) error {
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return download.Send(c.Response(), download.Answer{Name: f.Name, MediaType: "application/zip", Write: func(w io.Writer) (map[string]string, error) {
		return nil, f.Write(w)
	}})
}

// ExportForm shows the form of downloads.
func ExportForm(c echo.Context, page ui.Page, s Span, kinds []ui.Option, note string) error {
	from, to := s.From, s.Last()
	return ui.Render(c, http.StatusOK, ui.ExportPage(ui.Export{Page: page, Action: c.Request().URL.Path + "/file", Kinds: kinds,
		From: from.Format(DateLayout), To: to.Format(DateLayout), Note: note}))
}
