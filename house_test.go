package millrace

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A rule forbids imports. from and never are package paths under the module ("a/..." = a and below); except lists what
// from may use all the same.
type rule struct {
	from   string
	never  []string
	except []string
	why    string
}

// The direction: internal -> db -> tenants -> billing -> serving -> agents -> api, web -> cmd.
var rules = []rule{
	{from: "internal/...", never: []string{"db/...", "tenants/...", "billing/...", "serving/...", "agents/...", "api/...", "web/...", "cmd/...", "migrations"},
		why: "leaves know nothing of the domain, so that everything may use them"},
	{from: "db/...", never: []string{"tenants/...", "billing/...", "serving/...", "agents/...", "api/...", "web/...", "cmd/..."},
		why: "storage serves the domain and never decides for it"},
	{from: "tenants/...", never: []string{"billing/...", "serving/...", "agents/...", "api/...", "web/...", "cmd/..."},
		why: "who a customer is must not depend on what is sold or how it is served"},
	{from: "billing/...", never: []string{"serving/...", "agents/...", "api/...", "web/...", "cmd/..."},
		why: "money is provable without any engine"},
	{from: "serving/...", never: []string{"billing/...", "agents/...", "api/...", "web/...", "cmd/..."}, except: []string{"agents/wire"},
		why: "serving sees money only through internal/usage, internal/money and interfaces it declares; agents/wire is a leaf of messages"},
	{from: "agents/...", never: []string{"billing/...", "api/...", "web/...", "cmd/..."},
		why: "hosts and their hub report work; they never price it"},
	{from: "agents/wire", never: []string{"db/...", "tenants/...", "serving/...", "agents/host", "agents/hub"},
		why: "messages are shared by both sides and depend on neither"},
	{from: "agents/host/...", never: []string{"db/...", "tenants/...", "migrations", "agents/hub/..."},
		why: "the agent is a small static binary on machines that must not hold database access"},
	{from: "serving/engine/...", never: []string{"db/...", "tenants/...", "migrations", "agents/..."},
		why: "drivers run on hosts inside the agent"},
	{from: "serving/plan", never: []string{"db/...", "tenants/...", "serving/fleet", "serving/catalogue", "serving/recipe/store"},
		why: "the planner is pure: the same fleet and demands give the same plan"},
	{from: "serving/recipe", never: []string{"db/...", "tenants/...", "serving/recipe/store"},
		why: "what a recipe is needs no database; where it is kept is serving/recipe/store's"},
	{from: "cmd/millrace-agent", never: []string{"db/...", "tenants/...", "billing/...", "web/...", "migrations"},
		why: "the agent is a small static binary on machines that must not hold database access"},
	{from: "api/...", never: []string{"web/...", "cmd/..."}, why: "an API must not depend on pages"},
	{from: "web/...", never: []string{"api/...", "cmd/..."}, why: "pages must not depend on API handlers: both stand on the domain"},
	{from: "billing/topup", never: []string{"billing/stripegw/...", "billing/stripefake"},
		why: "what a payment means must not depend on whose payment it is"},
	{from: "billing/invoice", never: []string{"billing/stripegw/...", "billing/stripefake", "billing/topup"},
		why: "what an invoice's money means must not depend on whose till it comes by"},
	{from: "...", never: []string{"github.com/stripe/stripe-go/v76/..."}, except: []string{"billing/stripegw", "billing/stripefake"},
		why: "the payment provider stays in one room, so that its version can move"},
	{from: "...", never: []string{"github.com/parquet-go/parquet-go/..."}, except: []string{"billing/export"},
		why: "columns and their types are decided in one place"},
	{from: "...", never: []string{"github.com/johnfercher/maroto/v2/...", "golang.org/x/image/..."}, except: []string{"billing/invoice"},
		why: "documents are drawn in one place, so that what draws them can be replaced"},
}

type pkg struct {
	ImportPath, Doc, Dir string
	Imports              []string
	GoFiles, TestGoFiles []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Dir,Imports,GoFiles,TestGoFiles", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func matches(pattern, path string) bool {
	base, tree := strings.CutSuffix(pattern, "...")
	base = strings.TrimSuffix(base, "/")
	return path == base || tree && (base == "" || strings.HasPrefix(path, base+"/"))
}

func matchesAny(patterns []string, path string) bool {
	for _, p := range patterns {
		if matches(p, path) {
			return true
		}
	}
	return false
}

func TestImportsGoOneWay(t *testing.T) {
	all := packages(t)
	for _, r := range rules {
		met := false
		for _, p := range all {
			from := strings.TrimPrefix(p.ImportPath, "millrace/")
			if !matches(r.from, from) {
				continue
			}
			met = true
			if r.from == "..." && matchesAny(r.except, from) {
				continue
			}
			for _, imp := range p.Imports {
				imp = strings.TrimPrefix(imp, "millrace/")
				if matchesAny(r.never, imp) && !matchesAny(r.except, imp) && !matches(r.from, imp) {
					t.Errorf("%s imports %s: %s", from, imp, r.why)
				}
			}
		}
		if !met {
			t.Errorf("rule for %q matches no package: remove it or mend its path", r.from)
		}
	}
}

// The agent's binary must not even reach the database through another package.
func TestTheAgentBinaryIsLean(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/millrace-agent").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if strings.HasPrefix(dep, "github.com/jackc/pgx") || strings.HasPrefix(dep, "github.com/nats-io/nats-server") {
			t.Errorf("the agent links %s: it must stay small and without database access", dep)
		}
	}
}

func TestEveryPackageHasOneDocComment(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		documented := 0
		for _, f := range p.GoFiles {
			src, err := os.ReadFile(p.Dir + "/" + f)
			if err != nil {
				t.Fatal(err)
			}
			if hasPackageDoc(string(src)) {
				documented++
			}
		}
		if documented != 1 {
			t.Errorf("%s has %d package comments, want 1", p.ImportPath, documented)
		}
	}
}

func hasPackageDoc(src string) bool {
	before, _, _ := strings.Cut(src, "\npackage ")
	lines := strings.Split(before, "\n")
	last := lines[len(lines)-1]
	return strings.HasPrefix(last, "//") && !strings.HasPrefix(last, "//go:") || strings.HasSuffix(last, "*/")
}
