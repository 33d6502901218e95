package control

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/hook"
	"millrace/billing/price"
	"millrace/db"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/serving/catalogue"
	"millrace/serving/fleet"
	"millrace/tenants"
	"millrace/tenants/keys"
	"millrace/tenants/secret"
)

var update = flag.Bool("update", false, "write testdata anew; review the difference")

// Every route × every kind of bearer, compared with a table that is reviewed by eye. The requests are the examples of
// openapi.yaml, so those are proved to work too.
func TestAccessMatrix(t *testing.T) {
	f := setup(t)
	d := readDocument(t)
	params := f.things()
	revoked, err := f.tenants.CreateControlToken(t.Context(), f.root, "old")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.tenants.RevokeControlToken(t.Context(), f.root, "old"); err != nil {
		t.Fatal(err)
	}
	bearers := []struct{ name, header string }{
		{"none", ""}, {"bad", "Bearer " + secret.New(secret.ControlToken)}, {"not bearer", "Basic " + f.token},
		{"revoked", "Bearer " + revoked}, {"api key", "Bearer " + params["{api key}"]}, {"operator", "Bearer " + f.token},
	}
	var table strings.Builder
	head := strings.Repeat(" ", 77)
	for _, b := range bearers {
		head += fmt.Sprintf("%-12s", b.name)
	}
	table.WriteString(strings.TrimRight(head, " ") + "\n")
	for _, r := range new(api).routes() {
		line := fmt.Sprintf("%-7s%-70s", r.method, r.path)
		path, body := r.path, d.example(r)
		for name, value := range params {
			path, body = strings.ReplaceAll(path, name, value), strings.ReplaceAll(body, name, value)
		}
		headers := []string{"Authorization", ""}
		if r.idempotent {
			headers = append(headers, headerIdempotencyKey, r.id)
		}
		for _, b := range bearers {
			headers[1] = b.header
			a := f.send(r.method, path, body, headers...)
			if a.status >= 500 || b.name == "operator" && a.status >= 400 {
				t.Errorf("%s %s: %d %s", r.method, path, a.status, a.body)
			}
			if got := a.header.Get("Cache-Control"); got != "no-store" {
				t.Errorf("%s %s: Cache-Control %q", r.method, path, got)
			}
			line += fmt.Sprintf("%-12d", a.status)
		}
		table.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	golden(t, "testdata/access.txt", table.String())
}

// things makes one of everything a path can name. {project} holds no key that another route needs.
func (f *fixture) things() map[string]string {
	f.t.Helper()
	ctx := f.t.Context()
	must := func(err error) {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	org, first := f.org("Acme")
	project, err := f.tenants.CreateProject(ctx, f.root, org.ID, "Second")
	must(err)
	member, err := f.tenants.AddMember(ctx, f.root, org.ID, "vic@acme.example", tenants.Viewer)
	must(err)
	key, text, err := f.keys.Create(ctx, f.root, keys.NewKey{Org: org.ID, Project: first.ID, Name: "web"})
	must(err)
	_, err = f.tenants.CreateControlToken(ctx, f.root, "spare")
	must(err)
	model, err := f.cat.CreateModel(ctx, catalogue.ModelInput{Name: "acme/small", Context: 4096}, f.root)
	must(err)
	unit, err := f.cat.Attach(ctx, catalogue.AttachInput{Name: "spare", URL: "http://127.0.0.1:9", Engine: "vllm", PublicModel: "acme/small"}, f.root)
	must(err)
	version, err := f.prices.Create(ctx, f.root, draft(model.ID, f.clock.Now().AddDate(1, 0, 0)))
	must(err)
	contract, err := f.prices.AddContract(ctx, f.root, price.NewContract{Org: org.ID, Book: price.Standard, StartsAt: f.clock.Now().AddDate(1, 0, 0)})
	must(err)
	webhook, _, err := f.hooks.Add(ctx, f.root, org.ID, "https://acme.example/first")
	must(err)
	second := tenants.Actor{Operator: true, Token: "second"}
	ask := func(key string) string {
		r, err := f.desk.Ask(ctx, second, credit.Ask{Org: org.ID, Kind: credit.AdjustmentRequest, Amount: 2000 * money.NanoPerUSD, Reason: "large", IdempotencyKey: key})
		must(err)
		return ids.Format(requestPrefix, r.ID)
	}
	spare, _, err := f.recipes.Add(ctx, []byte("name: spare\nengine: sim\nversion: \"1\"\nmodel: {name: sim, path: \"\", context: 4096}\nhardware: []\npools: [{role: whole, gpus: 0}]\n"), f.root)
	must(err)
	recipe, err := f.recipes.Get(ctx, spare, f.root)
	must(err)
	granted, _, err := f.desk.Grant(ctx, f.root, credit.GrantInput{Org: org.ID, Kind: credit.Paid, Amount: money.NanoPerUSD, Reason: "wire", IdempotencyKey: "wire"})
	must(err)
	var txn ids.ID
	must(f.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO reconcile_runs (id, at, watermark, unexplained, report) VALUES ($1, $2, $2, false, '{}')", ids.New(), f.clock.Now().Add(time.Hour)); err != nil { // behind the invoice
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE orgs SET created_at = '2026-09-01' WHERE org_id = $1", org.ID); err != nil { // months begin with the first customer's
			return err
		}
		return tx.QueryRow(ctx, "SELECT txn_id FROM ledger_lot_moves WHERE lot_id = $1", granted.ID).Scan(&txn)
	}))
	host, placed := ids.New(), ids.New()
	must(f.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO hosts (id, name) VALUES ($1, 'spare')", host); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO units (id, name, model_id, engine, host_id, upstream_model) VALUES ($1, 'placed', $2, 'sim', $3, 'sim')", placed, model.ID, host)
		return err
	}))
	window, err := f.fleet.AddWindow(ctx, f.root, fleet.Window{Host: host, Starts: f.clock.Now().AddDate(1, 0, 0), Ends: f.clock.Now().AddDate(1, 0, 1), Reason: "spare"})
	must(err)
	plan, err := f.fleet.Draft(ctx, f.root, "spare")
	must(err)
	bill := f.invoice(org.ID)
	payment, _ := f.settled(org.ID, bill)
	note := f.refusedNote(org.ID, bill)
	return map[string]string{
		"{invoice}": ids.Format(ids.Invoice, bill), "{payment}": ids.Format(paymentPrefix, payment), "{note}": ids.Format(ids.Note, note), "{month}": "2026-09", "{txn}": ids.Format(ids.Txn, txn),
		"{approval}": ask("large"),
		"{host}":     ids.Format(ids.Host, host), "{placed}": ids.Format(ids.Unit, placed), "{window}": ids.Format(ids.Window, window), "{plan}": ids.Format(ids.Plan, plan),
		"{recipe}": ids.Format(ids.Recipe, spare), "{digest}": recipe.Recipe.Digest(),
		"{webhook}":  ids.Format(hook.Prefix, webhook.ID),
		"{contract}": ids.Format(ids.Pact, contract.ID),
		"{org}":      ids.Format(ids.Org, org.ID), "{project}": ids.Format(ids.Project, project.ID), "{user}": ids.Format(ids.User, member.User),
		"{key}": ids.Format(ids.Key, key.ID), "{model}": ids.Format(ids.Model, model.ID), "{price}": ids.Format(ids.Price, version.ID),
		"{unit}": ids.Format(ids.Unit, unit), "{request}": ids.Format(ids.Request, ids.New()), "{event}": ids.Format(ids.Aside, ids.New()), "{scope}": "key", "{kind}": "usage",
		"{scope_id}": ids.Format(ids.Key, key.ID), "{period}": "month", "{name}": "spare", "{api key}": text,
		"proj_019a3e5b7c1d7e2f8a90b1c2d3e4f506": ids.Format(ids.Project, first.ID), // of the example
	}
}

// example is the request's body in the description.
func (d *document) example(r route) string {
	d.t.Helper()
	body, ok := d.at("paths", r.path, strings.ToLower(r.method))["requestBody"].(node)
	if !ok {
		return ""
	}
	text, err := json.Marshal(body["content"].(node)["application/json"].(node)["example"])
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (run with -update and review):\n%s", path, got)
	}
}
