package dsml_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"millrace/serving/engine/dsml"
)

// What deepseek-recipe 0.2.0 (PyPI, MIT) answers to our own cases: *_cases.json are ours, *_oracle.json its answers, as
// testdata/oracle.py asks for them.

type renderCase struct {
	Name      string          `json:"name"`
	Deviation string          `json:"deviation"`
	Request   json.RawMessage `json:"request"`
}

type rendered struct {
	Error    string    `json:"error"`
	Segments []segment `json:"segments"`
	Images   int       `json:"images"`
	Parse    struct {
		Start string   `json:"start"`
		Tools bool     `json:"tools"`
		JSON  bool     `json:"json"`
		Stops []string `json:"stops"`
	} `json:"parse"`
}

type segment struct {
	Text    string `json:"text,omitempty"`
	Special string `json:"special,omitempty"`
}

var starts = map[string]dsml.Start{
	"content": dsml.ContentStart, "content_continued": dsml.ContentContinued, "reasoning": dsml.ReasoningStart,
	"reasoning_continued": dsml.ReasoningContinued, "calls": dsml.InCalls,
}

var versions = map[string]dsml.Version{"v41": dsml.V41, "v4": dsml.V4}

func segmentsOf(p *dsml.Prompt) (list []segment) {
	for _, s := range p.Segments {
		if s.Special {
			list = append(list, segment{Special: s.Text})
		} else {
			list = append(list, segment{Text: s.Text})
		}
	}
	return list
}

func TestRenderingIsTheOracles(t *testing.T) {
	var cases []renderCase
	var answers []map[string]rendered
	load(t, "render_cases.json", &cases)
	load(t, "render_oracle.json", &answers)
	for i, c := range cases {
		for name, v := range versions {
			t.Run(c.Name+"/"+name, func(t *testing.T) { checkRendered(t, &c, v, answers[i][name]) })
		}
	}
}

func checkRendered(t *testing.T, c *renderCase, v dsml.Version, want rendered) {
	p, err := dsml.Render(c.Request, dsml.Options{Version: v, ThinkByDefault: true})
	switch {
	case c.Deviation != "" && want.Error != "":
		if err != nil {
			t.Errorf("%v, though %s", err, c.Deviation)
		}
		return
	case (err != nil) != (want.Error != ""):
		t.Fatalf("error %v, the oracle's %q", err, want.Error)
	case err != nil:
		return
	}
	if got := segmentsOf(p); !reflect.DeepEqual(got, want.Segments) {
		t.Errorf("got  %+v\nwant %+v", got, want.Segments)
	}
	if c.Deviation != "" {
		return
	}
	images := want.Images
	if v == dsml.V4 {
		images = 0 // it names them, but there is no placeholder
	}
	if len(p.Images) != images || p.Parse.Start != starts[want.Parse.Start] || p.Parse.Tools != want.Parse.Tools || p.Parse.JSON != want.Parse.JSON ||
		len(p.Parse.Stops) != len(want.Parse.Stops) || len(p.Parse.Stops) > 0 && !reflect.DeepEqual(p.Parse.Stops, want.Parse.Stops) {
		t.Errorf("got %d images, %+v; want %+v", len(p.Images), p.Parse, want)
	}
}

type parseCase struct {
	Name    string   `json:"name"`
	Texts   []string `json:"texts"`
	Finish  string   `json:"finish"`
	Options struct {
		Start string   `json:"start"`
		Tools *bool    `json:"tools"`
		JSON  bool     `json:"json"`
		Stops []string `json:"stops"`
	} `json:"options"`
	Ours *struct {
		Why string `json:"why"`
		answer
	} `json:"ours"`
}

type answer struct {
	Reasoning string `json:"reasoning"`
	Content   string `json:"content"`
	Calls     []call `json:"calls"`
	Finish    string `json:"finish"`
}

type call struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func (c *parseCase) options() dsml.ParseOptions {
	o := dsml.ParseOptions{Start: starts[c.Options.Start], Tools: true, JSON: c.Options.JSON, Stops: c.Options.Stops}
	if c.Options.Tools != nil {
		o.Tools = *c.Options.Tools
	}
	return o
}

// want is what we answer: the oracle's answer but where ours differs on purpose.
func (c *parseCase) want(oracle answer) answer {
	w := oracle
	if c.Options.JSON {
		w.Content = strings.Trim(w.Content, " ") // it puts spaces in the place of text around JSON; we drop it
	}
	if c.Ours == nil {
		return w
	}
	if strings.HasPrefix(c.Name, "given up") {
		w.Finish = c.Ours.Finish
		return w
	}
	w = c.Ours.answer
	if w.Finish == "" {
		w.Finish = "stop"
	}
	return w
}

func TestParsingIsTheOracles(t *testing.T) {
	var cases []parseCase
	var answers []answer
	load(t, "parse_cases.json", &cases)
	load(t, "parse_oracle.json", &answers)
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			want := c.want(answers[i])
			if got := parse(c.options(), c.Finish, c.Texts...); !equal(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			whole := strings.Join(c.Texts, "")
			for cut := range len(whole) {
				if got := parse(c.options(), c.Finish, whole[:cut], whole[cut:]); !equal(got, want) {
					t.Fatalf("cut at %d: got  %+v\nwant %+v", cut, got, want)
				}
			}
			if got := parse(c.options(), c.Finish, single(whole)...); !equal(got, want) {
				t.Errorf("byte by byte: got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// single cuts a text into its bytes.
func single(s string) (list []string) {
	for i := range len(s) {
		list = append(list, s[i:i+1])
	}
	return list
}

func equal(a, b answer) bool {
	return a.Reasoning == b.Reasoning && a.Content == b.Content && a.Finish == b.Finish &&
		(len(a.Calls) == 0 && len(b.Calls) == 0 || reflect.DeepEqual(a.Calls, b.Calls))
}

// parse reads texts one after another, as the engine's stream would bring them.
func parse(o dsml.ParseOptions, finish string, texts ...string) answer {
	a, _ := parsed(o, finish, texts...)
	return a
}

func parsed(o dsml.ParseOptions, finish string, texts ...string) (a answer, p *dsml.Parser) {
	p = dsml.NewParser(o, nil)
	for _, text := range texts {
		a.take(p.Feed([]byte(text)))
	}
	done := p.Done()
	a.take(p.Finish())
	a.Finish = p.FinishReason(finish, done)
	return a, p
}

func (a *answer) take(pieces []dsml.Piece) {
	for _, x := range pieces {
		switch x.Kind {
		case dsml.Reasoning:
			a.Reasoning += string(x.Text)
		case dsml.Content:
			a.Content += string(x.Text)
		case dsml.CallBegin:
			a.Calls = append(a.Calls, call{Name: x.Name})
		case dsml.CallText:
			a.Calls[x.Call].Arguments += string(x.Text)
		}
	}
}

// The recorded answers are still the oracle's. The slow run asks it; MILLRACE_RECIPE_PYTHON names a Python
// with deepseek-recipe==0.2.0 for any run.
func TestTheOracleStillSaysSo(t *testing.T) {
	for _, kind := range []string{"render", "parse"} {
		var cases []json.RawMessage
		var was, is any
		load(t, kind+"_cases.json", &cases)
		load(t, kind+"_oracle.json", &was)
		ask(t, cases, &is)
		if !reflect.DeepEqual(was, is) {
			t.Errorf("testdata/%s_oracle.json is not what the oracle says", kind)
		}
	}
}

// python finds a Python with the oracle, or installs one in a slow run.
var python = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("MILLRACE_RECIPE_PYTHON"); path != "" || os.Getenv("MILLRACE_SLOW") == "" {
		return path, nil
	}
	dir := filepath.Join(os.TempDir(), "millrace-deepseek-recipe-0.2.0")
	path := filepath.Join(dir, "bin", "python")
	if exec.Command(path, "-c", "import deepseek_recipe").Run() == nil {
		return path, nil
	}
	if out, err := exec.Command("python3", "-m", "venv", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if out, err := exec.Command(path, "-m", "pip", "install", "-q", "deepseek-recipe==0.2.0").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// ask asks the oracle; without one the test is skipped.
func ask(t *testing.T, cases, into any) {
	t.Helper()
	path, err := python()
	if err != nil {
		t.Fatal(err)
	}
	if path == "" {
		t.Skip("NOT COMPARED with deepseek-recipe: set MILLRACE_SLOW=1, or MILLRACE_RECIPE_PYTHON to a Python with deepseek-recipe==0.2.0")
	}
	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, filepath.Join("testdata", "oracle.py"))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatal(err)
	}
}

func load(t testing.TB, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
