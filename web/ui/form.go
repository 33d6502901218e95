package ui

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
)

// Form is what a person typed and what is wrong with it. The zero value is an empty, faultless form.
type Form struct {
	Values url.Values
	Errors []FieldError
}

// FieldError says what is wrong with one field. An empty Field is about the whole form.
type FieldError struct{ Field, Text string }

// maxFormBytes bounds a posted form: the largest is a playground message.
const maxFormBytes = 256 << 10

// ReadForm parses the posted form of c, bounded in size.
func ReadForm(c echo.Context) (*Form, error) {
	r := c.Request()
	r.Body = http.MaxBytesReader(c.Response(), r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil {
		return nil, fault.New(fault.Invalid, "The form could not be read; it may be too large.").WithCause(err)
	}
	for _, values := range r.PostForm {
		for _, v := range values {
			if !utf8.ValidString(v) || strings.ContainsRune(v, 0) { // no database keeps that
				return nil, fault.New(fault.Invalid, "The form has characters that are no text.")
			}
		}
	}
	return &Form{Values: r.PostForm}, nil
}

// Get is the field's value without surrounding blanks.
func (f *Form) Get(field string) string { return strings.TrimSpace(f.Values.Get(field)) }

// Fail notes that a field is wrong.
func (f *Form) Fail(field, text string) { f.Errors = append(f.Errors, FieldError{field, text}) }

// Error is what is wrong with a field, or "".
func (f *Form) Error(field string) string {
	for _, e := range f.Errors {
		if e.Field == field {
			return e.Text
		}
	}
	return ""
}

// OK reports that nothing is wrong so far.
func (f *Form) OK() bool { return len(f.Errors) == 0 }

// Absorb turns a domain's refusal of the input (Invalid, Conflict or OutOfCredit) into a field error and reports true;
// any other error is the caller's to return.
func (f *Form) Absorb(err error) bool {
	if !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.OutOfCredit) {
		return false
	}
	e := fault.Of(err)
	f.Fail(e.Param, e.Message)
	return true
}

// Field describes one control to Input, Choice and Area.
type Field struct {
	Name, Label string
	Hint        string
	Type        string // of the input; empty is text
	Mode        string // inputmode: decimal, numeric, email; empty is the browser's
	Prefix      string // printed before the control, for example "$"
	Placeholder string
	Default     string // shown when the form has no value yet
	Optional    bool
	Bare        bool   // optional without saying so: filters
	Fill        string // autocomplete; empty is off
	Max         int    // maxlength in characters; 0 is none
	Options     []Option
}

// Option is one choice of a Field.
type Option struct {
	Value, Text string
	Data        templ.Attributes // data attributes for scripts; may be nil
}

func (f *Form) value(x Field) string {
	if f.Values.Has(x.Name) {
		return f.Values.Get(x.Name)
	}
	return x.Default
}

func (x Field) kind() string {
	if x.Type == "" {
		return "text"
	}
	return x.Type
}

func (x Field) fill() string {
	if x.Fill == "" {
		return "off"
	}
	return x.Fill
}

// first reports whether name is the first wrong field: it gets the focus.
func (f *Form) first(name string) bool { return len(f.Errors) > 0 && f.Errors[0].Field == name }

func (f *Form) attrs(x Field) templ.Attributes {
	a := templ.Attributes{"id": x.Name, "name": x.Name}
	var described []string
	if x.Hint != "" {
		described = append(described, x.Name+"-hint")
	}
	if f.Error(x.Name) != "" {
		described = append(described, x.Name+"-error")
		a["aria-invalid"] = "true"
	}
	if f.first(x.Name) {
		a["autofocus"] = true
	}
	if len(described) > 0 {
		a["aria-describedby"] = strings.Join(described, " ")
	}
	if !x.Optional {
		a["required"] = true
	}
	return a
}

func problemCount(n int) string {
	return Plural(int64(n), "thing needs", "things need") + " your attention."
}
