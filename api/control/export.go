package control

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"millrace/billing/export"
	"millrace/internal/download"
	"millrace/internal/ids"
)

// ExportQuery asks for a file of rows.
type ExportQuery struct {
	From   time.Time `json:"from,omitempty"`
	To     time.Time `json:"to,omitempty"`
	Format string    `json:"format,omitempty"`
	After  string    `json:"after,omitempty"`
}

// stream is a route that answers with a file of any length.
func stream(path, id string, h func(c *call, q ExportQuery) error) route {
	r := op(http.MethodGet, path, id, http.StatusOK, func(c *call, q ExportQuery, _ none) (none, error) { return none{}, h(c, q) })
	r.stream, r.timeout, r.out = true, exportTimeout, reflect.TypeFor[[]byte]()
	return r
}

func (a *api) exportOrg(c *call, q ExportQuery) error {
	org, err := c.org()
	if err != nil {
		return err
	}
	if _, err := a.Tenants.Org(c, c.actor, org); err != nil {
		return err
	}
	return a.export(c, org, q)
}

func (a *api) exportAll(c *call, q ExportQuery) error { return a.export(c, ids.Nil, q) }

// Trailers of an export: what the manifest says.
const (
	trailerRows   = "Export-Rows"
	trailerSums   = "Export-Sums"
	trailerSHA256 = "Export-Sha256"
	trailerNext   = "Export-Next"
)

func (a *api) export(c *call, org ids.ID, q ExportQuery) error {
	f, err := export.ParseFormat(q.Format)
	if err != nil {
		return err
	}
	in := export.Query{Kind: export.Kind(c.param("kind")), Org: org, From: q.From, To: q.To}
	if in.To.IsZero() {
		in.To = a.Clock.Now().UTC()
	}
	if in.From.IsZero() {
		in.From = in.To.AddDate(0, 0, -defaultDays)
	}
	if in.After, err = export.ParseCursor(q.After); err != nil {
		return err
	}
	if err := a.Exports.Check(c.actor, in); err != nil {
		return err
	}
	return download.Send(c.echo.Response(), download.Answer{Name: in.FileName(f), MediaType: f.MediaType(),
		Trailers: []string{trailerRows, trailerSums, trailerSHA256, trailerNext},
		Write: func(w io.Writer) (map[string]string, error) {
			m, err := a.Exports.Write(c, c.actor, in, f, w)
			if err != nil {
				return nil, err
			}
			sums, err := json.Marshal(m.Total.Sums)
			return map[string]string{trailerRows: strconv.FormatInt(m.Total.Rows, 10), trailerSums: string(sums),
				trailerSHA256: m.Parts[0].SHA256, trailerNext: m.Parts[0].Next.String()}, err
		}})
}
