package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"millrace/internal/fault"
)

// readBody reads a JSON object into in. Unknown, misspelt and missing fields are errors: a field is obligatory unless its
// tag says omitempty. For none the body must be empty.
func readBody[In any](w http.ResponseWriter, r *http.Request, in *In) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return fault.Wrap(err, fault.Invalid, "The body could not be read.")
	}
	if reflect.TypeFor[In]() == reflect.TypeFor[none]() {
		if len(bytes.TrimSpace(text)) > 0 {
			return fault.New(fault.Invalid, "This operation takes no body.")
		}
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return fault.New(fault.Unsupported, "Send the body as application/json.")
	}
	var present map[string]json.RawMessage
	if err := json.Unmarshal(text, &present); err != nil {
		return badJSON(err)
	}
	if err := checkFields(reflect.TypeFor[In](), present); err != nil {
		return err
	}
	if name := twice(json.NewDecoder(bytes.NewReader(text)), ""); name != "" {
		return fault.New(fault.Invalid, "The field %s is given twice.", name).WithParam(name).WithCode("duplicate_field")
	}
	for name, value := range present {
		if hasNUL(value) { // no database keeps that
			return fault.New(fault.Invalid, "The field %s has characters that are no text.", name).WithParam(name)
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // in nested objects
	if err := d.Decode(in); err != nil {
		return badJSON(err)
	}
	return nil
}

// hasNUL reports whether a JSON value holds a NUL: without the escaped backslashes, this form is nothing else.
func hasNUL(value []byte) bool {
	return bytes.Contains(bytes.ReplaceAll(value, []byte(`\\`), nil), []byte(`\u0000`))
}

// twice gives the path of a name that an object holds twice, at any depth; "" = there is none. encoding/json would silently
// take the last one. The decoder must be at the beginning of a value that is known to be JSON.
func twice(d *json.Decoder, path string) string {
	token, err := d.Token()
	open, nested := token.(json.Delim)
	if err != nil || !nested {
		return ""
	}
	seen := map[string]bool{}
	for d.More() {
		inner := path
		if open == '{' {
			name, _ := d.Token()
			inner = strings.TrimPrefix(path+"."+fmt.Sprint(name), ".")
			if seen[strings.ToLower(inner)] { // encoding/json takes NAME for name in nested objects
				return inner
			}
			seen[strings.ToLower(inner)] = true
		}
		if name := twice(d, inner); name != "" {
			return name
		}
	}
	_, _ = d.Token() // its end
	return ""
}

// checkFields compares names exactly: encoding/json would take Name for name.
func checkFields(t reflect.Type, present map[string]json.RawMessage) error {
	known := map[string]bool{}
	for f := range fields(t) {
		known[f.name] = true
		if _, ok := present[f.name]; !ok && !f.optional {
			return fault.New(fault.Invalid, "The field %s is missing.", f.name).WithParam(f.name).WithCode("missing_field")
		}
	}
	for name := range present {
		if !known[name] {
			return unknownField(name)
		}
	}
	return nil
}

func unknownField(name string) error {
	return fault.New(fault.Invalid, "There is no field %q.", name).WithParam(name).WithCode("unknown_field")
}

func badJSON(err error) error {
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed):
		return fault.New(fault.Invalid, "The field %s must be of another type than %s.", typed.Field, typed.Value).WithParam(typed.Field).WithCause(err)
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		name, _ := strconv.Unquote(strings.TrimPrefix(err.Error(), "json: unknown field "))
		return unknownField(name)
	}
	var when *time.ParseError
	if errors.As(err, &when) {
		return fault.New(fault.Invalid, "%s is no time such as 2026-11-30T12:00:00Z.", when.Value).WithCause(err)
	}
	return fault.Wrap(err, fault.Invalid, "The body is not a JSON object.")
}

// field is an exported field of a body or query, by its tag.
type field struct {
	name     string
	optional bool
	index    int
	typ      reflect.Type
}

// fields yields the fields of a struct by their json tag.
func fields(t reflect.Type) func(func(field) bool) {
	return func(yield func(field) bool) {
		for i := range t.NumField() {
			name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if !yield(field{name: name, optional: strings.Contains(options, "omitempty"), index: i, typ: t.Field(i).Type}) {
				return
			}
		}
	}
}

// readQuery reads the query into a struct of strings, integers, booleans and times. An unknown parameter, or one given
// twice, is an error. Every parameter is optional here; the operation says which it needs.
func readQuery[Q any](values url.Values, q *Q) error {
	v := reflect.ValueOf(q).Elem()
	known := map[string]bool{}
	for f := range fields(v.Type()) {
		known[f.name] = true
		given := values[f.name]
		if len(given) == 0 {
			continue
		}
		if len(given) > 1 {
			return fault.New(fault.Invalid, "The parameter %s is given twice.", f.name).WithParam(f.name)
		}
		if err := setParam(v.Field(f.index), given[0]); err != nil {
			return fault.New(fault.Invalid, "The parameter %s cannot be read.", f.name).WithParam(f.name).WithCause(err)
		}
	}
	for name := range values {
		if !known[name] {
			return fault.New(fault.Invalid, "There is no parameter %q.", name).WithParam(name).WithCode("unknown_parameter")
		}
	}
	return nil
}

func setParam(v reflect.Value, s string) error {
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = s
	case *int:
		n, err := strconv.Atoi(s)
		*p = n
		return err
	case *time.Time:
		t, err := time.Parse(time.RFC3339, s)
		*p = t.UTC()
		return err
	default:
		panic("control: a query parameter of type " + v.Type().String())
	}
	return nil
}
