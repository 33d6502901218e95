package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"millrace/api/problem"
	"millrace/billing/export"
	"millrace/serving/engine"
)

// node is any part of the description.
type node = map[string]any

type document struct {
	t    *testing.T
	root node
	seen map[string]bool // schemas compared
}

func readDocument(t *testing.T) *document {
	t.Helper()
	d := &document{t: t, seen: map[string]bool{}}
	if err := yaml.Unmarshal(openapi, &d.root); err != nil {
		t.Fatal(err)
	}
	return d
}

// at follows names from the root.
func (d *document) at(path ...string) node {
	d.t.Helper()
	n := d.root
	for _, p := range path {
		next, ok := n[p].(node)
		if !ok {
			d.t.Fatalf("openapi.yaml has no %s", strings.Join(path, "."))
		}
		n = next
	}
	return n
}

// deref follows a $ref.
func (d *document) deref(n node) node {
	ref, ok := n["$ref"].(string)
	if !ok {
		return n
	}
	return d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

func list(v any) []any { l, _ := v.([]any); return l }

// The description and the routes say the same: every path, method, parameter, body, status and answer, in both directions.
func TestDescriptionIsWhatIsServed(t *testing.T) {
	d := readDocument(t)
	described := map[string]node{}
	for path, item := range d.at("paths") {
		for method, o := range item.(node) {
			if method != "parameters" {
				described[strings.ToUpper(method)+" "+path] = o.(node)
			}
		}
	}
	for _, r := range new(api).routes() {
		name := r.method + " " + r.path
		o, ok := described[name]
		if !ok {
			t.Errorf("%s is served and not described", name)
			continue
		}
		delete(described, name)
		t.Run(r.id, func(t *testing.T) {
			d := &document{t: t, root: d.root, seen: d.seen}
			d.compare(r, o, d.at("paths", r.path))
		})
	}
	for _, name := range slices.Sorted(maps.Keys(described)) {
		t.Errorf("%s is described and not served", name)
	}
	d.compareSchema("Problem", reflect.TypeFor[problem.Problem](), false)
	for _, name := range slices.Sorted(maps.Keys(d.at("components", "schemas"))) {
		if !d.seen[name] {
			t.Errorf("the schema %s is used by no route", name)
		}
	}
}

func (d *document) compare(r route, o, item node) {
	if o["operationId"] != r.id {
		d.t.Errorf("operationId %v, want %s", o["operationId"], r.id)
	}
	if _, open := o["security"]; open != r.public {
		d.t.Errorf("security is %v in the description", o["security"])
	}
	if o["summary"] == nil || len(list(o["tags"])) != 1 {
		d.t.Error("wants a summary and one tag")
	}
	d.compareParameters(r, append(list(item["parameters"]), list(o["parameters"])...))
	body, has := o["requestBody"].(node)
	if has != (r.in != reflect.TypeFor[none]()) {
		d.t.Errorf("a body is described: %v", has)
	} else if has {
		d.compareContent(body, "application/json", r.in, true)
	}
	d.compareResponses(r, o["responses"].(node))
}

func (d *document) compareParameters(r route, params []any) {
	want := map[string]string{}
	for _, m := range pathParam.FindAllStringSubmatch(r.path, -1) {
		want["path "+m[1]] = "string"
	}
	for f := range fields(r.query) {
		want["query "+f.name] = typeName(f.typ)
		if !f.optional {
			d.t.Errorf("the parameter %s must be optional in Go", f.name)
		}
	}
	if r.idempotent {
		want["header "+headerIdempotencyKey] = "string"
	}
	got := map[string]string{}
	for _, p := range params {
		p := d.deref(p.(node))
		schema := p["schema"].(node)
		kind := schema["type"].(string)
		if format, ok := schema["format"].(string); ok {
			kind += " " + format
		}
		got[p["in"].(string)+" "+p["name"].(string)] = kind
		required, _ := p["required"].(bool)
		if want := p["in"] == "path" || p["in"] == "header" && r.keyIsObligatory; required != want {
			d.t.Errorf("parameter %v: required is %v", p["name"], required)
		}
	}
	if !maps.Equal(got, want) {
		d.t.Errorf("parameters %v, want %v", got, want)
	}
}

func (d *document) compareResponses(r route, responses node) {
	if len(responses) != 2 || responses["default"] == nil {
		d.t.Errorf("wants one success and a default, has %v", slices.Sorted(maps.Keys(responses)))
	}
	answer, ok := responses[strconv.Itoa(r.status)].(node)
	answer = d.deref(answer)
	switch {
	case !ok:
		d.t.Errorf("status %d is not described", r.status)
	case r.stream:
		for _, f := range export.Formats {
			if kind, _, _ := strings.Cut(f.MediaType(), ";"); answer["content"].(node)[kind] == nil {
				d.t.Errorf("content type %s is not described", kind)
			}
		}
	case r.contentType != "":
		if _, ok := answer["content"].(node)[r.contentType]; !ok {
			d.t.Errorf("content type %s is not described", r.contentType)
		}
	case r.out == reflect.TypeFor[none]():
		if r.status != http.StatusNoContent || answer["content"] != nil {
			d.t.Error("an empty answer is 204 without content")
		}
	default:
		d.compareContent(answer, "application/json", r.out, false)
	}
}

func (d *document) compareContent(n node, contentType string, t reflect.Type, request bool) {
	media := n["content"].(node)[contentType].(node)
	name, ok := schemaRef(media["schema"].(node))
	if !ok || name != schemaName(t) {
		d.t.Errorf("schema %q, want %s", name, schemaName(t))
		return
	}
	d.compareSchema(name, t, request)
	if request && media["example"] == nil {
		d.t.Error("a request wants an example")
	}
}

func schemaRef(n node) (string, bool) {
	ref, ok := n["$ref"].(string)
	return strings.TrimPrefix(ref, "#/components/schemas/"), ok
}

// schemaName is a type's name in the description; Page[Org] is OrgPage.
func schemaName(t reflect.Type) string {
	name, arg, generic := strings.Cut(t.Name(), "[")
	if !generic {
		return name
	}
	return strings.TrimSuffix(arg[strings.LastIndexByte(arg, '.')+1:], "]") + name
}

// compareSchema compares a named schema with a struct: the same fields, of the same types, obligatory in both or neither.
func (d *document) compareSchema(name string, t reflect.Type, request bool) {
	s := d.at("components", "schemas", name)
	if request && s["additionalProperties"] != false {
		d.t.Errorf("%s is read and must say additionalProperties: false", name)
	}
	if d.seen[name] {
		return
	}
	d.seen[name] = true
	properties, _ := s["properties"].(node)
	var required []string
	for _, r := range list(s["required"]) {
		required = append(required, r.(string))
	}
	for f := range fields(t) {
		p, ok := properties[f.name].(node)
		if !ok {
			d.t.Errorf("%s.%s is not described", name, f.name)
			continue
		}
		if slices.Contains(required, f.name) == f.optional {
			d.t.Errorf("%s.%s: obligatory in one and optional in the other", name, f.name)
		}
		if got, want := d.describe(p), d.typeOf(f.typ, request); got != want {
			d.t.Errorf("%s.%s is %s, want %s", name, f.name, got, want)
		}
	}
	if n := t.NumField(); n != len(properties) {
		d.t.Errorf("%s describes %d fields, %s has %d", name, len(properties), t, n)
	}
}

// describe writes a property's type in one word.
func (d *document) describe(p node) string {
	if name, ok := schemaRef(p); ok {
		return name
	}
	kind, _ := p["type"].(string)
	switch kind {
	case "array":
		return "array of " + d.describe(p["items"].(node))
	case "object":
		return "map of " + d.describe(p["additionalProperties"].(node))
	case "":
		return "anything"
	}
	if format, ok := p["format"].(string); ok && format != "email" {
		kind += " " + format
	}
	return kind
}

// typeOf is the same word for a Go type, and compares the schemas of structs on the way.
func (d *document) typeOf(t reflect.Type, request bool) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return d.typeOf(t.Elem(), request)
	case t == reflect.TypeFor[time.Time](), t == reflect.TypeFor[json.RawMessage]():
		return typeName(t)
	case t.Kind() == reflect.Slice:
		return "array of " + d.typeOf(t.Elem(), request)
	case t.Kind() == reflect.Map:
		return "map of " + d.typeOf(t.Elem(), request)
	case t.Kind() == reflect.Struct:
		d.compareSchema(schemaName(t), t, request)
		return schemaName(t)
	}
	return typeName(t)
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "string date-time"
	case t == reflect.TypeFor[json.RawMessage]():
		return "anything"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int:
		return "integer"
	case reflect.Int64:
		return "integer int64"
	case reflect.Float64:
		return "number"
	}
	return fmt.Sprintf("unknown %s", t)
}

// The engines that can be attached are those that have a driver.
func TestEnginesAreThoseWithADriver(t *testing.T) {
	var described []string
	for _, name := range list(readDocument(t).at("components", "schemas", "NewUnit", "properties", "engine")["enum"]) {
		described = append(described, name.(string))
	}
	var known []string
	for _, f := range engine.Families() {
		known = append(known, string(f))
	}
	if !slices.Equal(described, known) {
		t.Errorf("described: %v, known: %v", described, known)
	}
}
