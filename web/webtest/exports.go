package webtest

import (
	"context"
	"io"

	"millrace/web/report"
	"millrace/web/session"
)

// Export is a file that says what was asked for.
func (f *Fixture) Export(_ context.Context, _ session.Viewer, x report.Export) (report.File, error) {
	return exported(x), nil
}

// Export is a file that says what was asked for.
func (b business) Export(_ context.Context, x report.Export) (report.File, error) {
	return exported(x), nil
}

func exported(x report.Export) report.File {
	return report.File{Name: x.Kind + ".zip", Write: func(w io.Writer) error {
		_, err := io.WriteString(w, x.Kind+" "+x.Format+" "+x.From.Format(report.DateLayout)+" "+x.To.Format(report.DateLayout))
		return err
	}}
}
