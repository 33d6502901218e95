package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/api/inference"
	"millrace/api/openai"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/serving/batch"
	"millrace/serving/gate/gatetest"
	"millrace/tenants"
	"millrace/tenants/keys"
)

// newFiles puts files and batches before a real database. Nothing works on batches.
func newFiles(t *testing.T) *stand {
	t.Helper()
	d := dbtest.New(t)
	service := tenants.New(d, master(), clock.System, quiet{}, func(s string) string { return s })
	making := keys.New(d, master(), clock.System, quiet{})
	root := tenants.Actor{Operator: true, Token: "test"}
	who := people{}
	for _, name := range []string{goodKey, "mk_other"} {
		org, err := service.CreateOrg(t.Context(), root, tenants.NewOrg{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		projects, err := service.Projects(t.Context(), root, org.ID)
		if err != nil {
			t.Fatal(err)
		}
		k, _, err := making.Create(t.Context(), root, keys.NewKey{Org: org.ID, Project: projects[0].ID, Name: "key"})
		if err != nil {
			t.Fatal(err)
		}
		who[name] = keys.Principal{Org: org.ID, Project: projects[0].ID, Key: k.ID}
	}
	s := gatetest.New(t, gatetest.Options{Direct: true})
	e := echo.New()
	(&openai.API{Gate: s.Gate, Door: inference.Door{Auth: who, Clock: clock.System}, Models: s.Models, Prices: pricelist{},
		Batches: batch.New(d, clock.System, openai.BatchEndpoints(nil))}).Register(e)
	return &stand{Stand: s, url: gatetest.Serve(t, e), t: t, handler: e}
}

type quiet struct{}

func (quiet) Publish(string, []byte) error { return nil }

// field is a part of a form; a name makes it a file.
type field struct{ key, name, value string }

func form(fields ...field) (body, contentType string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		var part io.Writer
		if f.name != "" {
			part, _ = w.CreateFormFile(f.key, f.name)
		} else {
			part, _ = w.CreateFormField(f.key)
		}
		_, _ = io.WriteString(part, f.value)
	}
	_ = w.Close()
	return b.String(), w.FormDataContentType()
}

// upload sends a form.
func (s *stand) upload(fields ...field) (*http.Response, []byte) {
	body, contentType := form(fields...)
	return s.do("POST", "/v1/files", body, "Content-Type", contentType)
}

var purpose = field{"purpose", "", "batch"}

func TestUploads(t *testing.T) {
	s := newFiles(t)
	whole := field{"file", "../in.jsonl", "{}\n"}
	for name, tt := range map[string]struct {
		fields      []field
		status      int
		code, param string
	}{
		"purpose first":     {[]field{purpose, whole}, 200, "", ""},
		"file first":        {[]field{whole, purpose}, 200, "", ""},
		"with an end":       {[]field{purpose, {"expires_after[anchor]", "", "created_at"}, {"expires_after[seconds]", "", "3600"}, whole}, 200, "", ""},
		"no purpose":        {[]field{whole}, 400, "missing_required_parameter", "purpose"},
		"a wrong purpose":   {[]field{{"purpose", "", "fine-tune"}, whole}, 400, "invalid_value", "purpose"},
		"wrong, at its end": {[]field{whole, {"purpose", "", "assistants"}}, 400, "invalid_value", "purpose"},
		"no file":           {[]field{purpose}, 400, "missing_required_parameter", "file"},
		"text for a file":   {[]field{purpose, {"file", "", "{}"}}, 400, "", "file"},
		"an empty file":     {[]field{purpose, {"file", "a", ""}}, 400, "empty_file", "file"},
		"two files":         {[]field{purpose, whole, whole}, 400, "", "file"},
		"half an end":       {[]field{purpose, {"expires_after[seconds]", "", "3600"}, whole}, 400, "", "expires_after"},
		"a short end":       {[]field{purpose, {"expires_after[anchor]", "", "created_at"}, {"expires_after[seconds]", "", "1"}, whole}, 400, "", "expires_after.seconds"},
		"a long field":      {[]field{{"purpose", "", strings.Repeat("x", 2000)}, whole}, 400, "", "purpose"},
	} {
		answer, body := s.upload(tt.fields...)
		var got struct {
			Filename, Object, Status string
			Error                    struct{ Code, Param string }
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %v %s", name, err, body)
		}
		if answer.StatusCode != tt.status || got.Error.Code != tt.code || got.Error.Param != tt.param || tt.status == 200 && got.Filename != "in.jsonl" {
			t.Errorf("%s: %d %s", name, answer.StatusCode, body)
		}
	}
	if answer, body := s.upload(purpose, field{"odd", "", "x"}, whole); answer.Header.Get("Millrace-Warning") != "ignored: odd" {
		t.Errorf("%v %s", answer.Header, body)
	}
	// Only what was good is there.
	if _, body := s.do("GET", "/v1/files", ""); strings.Count(string(body), `"object":"file"`) != 4 {
		t.Errorf("%s", body)
	}
}

// deadlines notes when reading has to end.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// A client that sends nothing any more does not keep its upload for ever.
func TestUploadsHaveADeadline(t *testing.T) {
	s := newFiles(t)
	body, contentType := form(purpose, field{"file", "in.jsonl", "x"})
	r := httptest.NewRequest("POST", "/v1/files", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Authorization", "Bearer "+goodKey)
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	s.handler.ServeHTTP(w, r)
	if w.Code != 200 || len(w.set) != 2 || time.Until(w.set[0]) > time.Hour || time.Until(w.set[0]) < 50*time.Minute || !w.set[1].IsZero() {
		t.Errorf("%d %v", w.Code, w.set)
	}
}

func TestUploadsThatAreNoForms(t *testing.T) {
	s := newFiles(t)
	body, contentType := form(purpose, field{"file", "a", strings.Repeat("x", 200_000)})
	for name, tt := range map[string]struct {
		body, contentType string
		status            int
	}{
		"JSON":            {"{}", "application/json", 415},
		"no boundary":     {body, "multipart/form-data", 415},
		"broken off":      {body[:len(body)/2], contentType, 400},
		"another's bound": {body, "multipart/form-data; boundary=other", 400},
	} {
		if answer, text := s.do("POST", "/v1/files", tt.body, "Content-Type", tt.contentType); answer.StatusCode != tt.status {
			t.Errorf("%s: %d %s", name, answer.StatusCode, text)
		}
	}
	if _, body := s.do("GET", "/v1/files", ""); !strings.Contains(string(body), `"data":[]`) {
		t.Errorf("%s", body)
	}
	// One that says that it is too long is not read.
	req, err := http.NewRequest("POST", s.url+"/v1/files", io.LimitReader(endless{}, batch.MaxFileBytes+1<<20))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = batch.MaxFileBytes + 1<<20
	req.Header.Set("Authorization", "Bearer "+goodKey)
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Expect", "100-continue")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != 413 {
		t.Errorf("%d", answer.StatusCode)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// uploaded stores a file and gives its id.
func (s *stand) uploaded(text string) string {
	s.t.Helper()
	_, body := s.upload(purpose, field{"file", `a"ü.jsonl`, text})
	var f struct{ ID string }
	if err := json.Unmarshal(body, &f); err != nil || !strings.HasPrefix(f.ID, "file-") {
		s.t.Fatalf("%v %s", err, body)
	}
	return f.ID
}

func TestFilesAndBatchesOverHTTP(t *testing.T) {
	s := newFiles(t)
	text := strings.Repeat("0123456789", 300_000)
	file := s.uploaded(text)
	answer, body := s.do("GET", "/v1/files/"+file+"/content", "")
	if h := answer.Header; string(body) != text || h.Get("Content-Length") != "3000000" || h.Get("Content-Disposition") != `attachment; filename="a__.jsonl"` || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d bytes, %v", len(body), h)
	}
	made := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"a":"b"},"odd":1}`, file)
	answer, body = s.do("POST", "/v1/batches", made)
	var b struct{ ID string }
	if err := json.Unmarshal(body, &b); err != nil || answer.StatusCode != 200 || answer.Header.Get("Millrace-Warning") != "ignored: odd" ||
		!strings.Contains(string(body), `"metadata":{"a":"b"}`) || !strings.Contains(string(body), `"errors":null`) || strings.Contains(string(body), "paused") {
		t.Fatalf("%v %d %s", err, answer.StatusCode, body)
	}
	for _, tt := range []struct {
		method, path, body, key string
		status                  int
		want                    string // in the body
	}{
		{"GET", "/v1/files/" + file, "", goodKey, 200, `"bytes":3000000`},
		{"GET", "/v1/files?purpose=batch_output", "", goodKey, 200, `"data":[],"first_id":null`},
		{"GET", "/v1/files?purpose=a%00b", "", goodKey, 200, `"data":[]`},
		{"GET", "/v1/files/file-%00", "", goodKey, 404, "file_not_found"},
		{"GET", "/v1/batches/batch_%00", "", goodKey, 404, "batch_not_found"},
		{"GET", "/v1/files?limit=0", "", goodKey, 400, `"param":"limit"`},
		{"GET", "/v1/files?order=up", "", goodKey, 400, `"param":"order"`},
		{"GET", "/v1/files?after=x", "", goodKey, 400, `"param":"after"`},
		{"GET", "/v1/files/" + file, "", "mk_other", 404, "file_not_found"},
		{"GET", "/v1/files/" + file + "/content", "", "mk_other", 404, "file_not_found"},
		{"DELETE", "/v1/files/" + file, "", "mk_other", 404, "file_not_found"},
		{"GET", "/v1/files/" + file, "", "mk_bad", 401, "invalid_api_key"},
		{"POST", "/v1/files", "", "mk_bad", 401, "invalid_api_key"},
		{"GET", "/v1/files/file-x", "", goodKey, 404, "file_not_found"},
		{"GET", "/v1/files/", "", goodKey, 404, "file_not_found"},
		{"PUT", "/v1/files", "", goodKey, 405, "method_not_allowed"},
		{"POST", "/v1/files/" + file, "", goodKey, 405, "method_not_allowed"},
		{"DELETE", "/v1/files/" + file, "", goodKey, 409, "file_in_use"},
		{"GET", "/v1/batches", "", goodKey, 200, `"has_more":false`},
		{"GET", "/v1/batches", "", "mk_other", 200, `"data":[]`},
		{"GET", "/v1/batches?limit=101", "", goodKey, 400, `"param":"limit"`},
		{"GET", "/v1/batches/" + b.ID, "", goodKey, 200, `"status":"validating"`},
		{"GET", "/v1/batches/" + b.ID, "", "mk_other", 404, "batch_not_found"},
		{"POST", "/v1/batches/" + b.ID + "/cancel", "", "mk_other", 404, "batch_not_found"},
		{"GET", "/v1/batches/" + b.ID + "/cancel", "", goodKey, 405, "method_not_allowed"},
		{"POST", "/v1/batches/" + b.ID + "/cancel", "", goodKey, 200, `"status":"cancelling"`},
		{"POST", "/v1/batches", made, "mk_other", 404, `"param":"input_file_id"`},
		{"POST", "/v1/batches", `{"endpoint":"/v1/chat/completions"}`, goodKey, 400, "You must provide an input_file_id."},
		{"POST", "/v1/batches", strings.Replace(made, "chat/completions", "embeddings", 1), goodKey, 400, `"param":"endpoint"`},
		{"POST", "/v1/batches", strings.Replace(made, `{"a":"b"}`, `{"a":1}`, 1), goodKey, 400, `"param":"metadata"`},
		{"POST", "/v1/batches", strings.Replace(made, `"odd":1`, `"output_expires_after":{"anchor":"x","seconds":3600}`, 1), goodKey, 400, `"param":"output_expires_after"`},
		{"POST", "/v1/batches", `[]`, goodKey, 400, "invalid_json"},
	} {
		if answer, body := s.do(tt.method, tt.path, tt.body, "Authorization", "Bearer "+tt.key); answer.StatusCode != tt.status || !strings.Contains(string(body), tt.want) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, answer.StatusCode, body)
		}
	}
	spare := s.uploaded("x")
	if answer, body := s.do("DELETE", "/v1/files/"+spare, ""); answer.StatusCode != 200 || string(body) != fmt.Sprintf("{\"id\":%q,\"object\":\"file\",\"deleted\":true}\n", spare) {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}
