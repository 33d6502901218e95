package hub

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/release"
	"millrace/agents/wire"
	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/serving/engine"
	"millrace/tenants"
)

// A token that was stolen or sent again joins nobody, and the attempt is audited without the token.
func TestAJoinTokenIsGoodForOneIdentity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	token := b.token("h1")
	statuses := make([]int, 8)
	var all sync.WaitGroup
	for i := range statuses {
		all.Go(func() { statuses[i], _, _ = b.tryToken(token) })
	}
	all.Wait()
	took := 0
	for _, s := range statuses {
		switch s {
		case http.StatusOK:
			took++
		case http.StatusUnauthorized:
		default:
			t.Errorf("status %d", s)
		}
	}
	if took != 1 || len(b.audited("host.join")) != 1 {
		t.Errorf("%d of one token's uses made an identity: %v", took, statuses)
	}
	b.untilAudited("unknown caller", "127.0.0.1", "join token", "used")
	for name, bad := range map[string]string{"cut": token[:len(token)-1], "none": "", "unknown": wire.NewJoinToken(b.ca.Digest()).String()} {
		if status, _, _ := b.tryToken(bad); status != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, status)
		}
	}
	secret, _ := strings.CutPrefix(token, "mrj_")
	for _, e := range append(b.audited("host.refused"), b.audited("host.join")...) {
		if strings.Contains(e, secret[:20]) {
			t.Errorf("the audit log holds a token: %s", e)
		}
	}
	// A request that cannot be signed does not use a token up.
	fresh := b.token("h2")
	joining := intruder{b, pki.DialJoin(b.ca.Digest(), clock.System)}
	if status, _ := joining.call(http.MethodPost, wire.PathJoin, wire.JoinRequest{Token: fresh, CSR: []byte("junk")}); status != http.StatusBadRequest {
		t.Errorf("junk for a request: %d", status)
	}
	if status, _, _ := b.tryToken(fresh); status != http.StatusOK {
		t.Errorf("the token after junk: %d", status)
	}
}

// Whoever is not a host of ours, or not any more, is refused at every door of the hub, and audited.
func TestWrongIdentitiesAtTheHub(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	live, source := b.joined("live")
	removed, removedSource := b.joined("removed")
	if err := b.hub.RemoveHost(t.Context(), removed, tenants.System()); err != nil {
		t.Fatal(err)
	}
	ended, endedSource := b.joined("ended")
	b.exec("UPDATE hosts SET joined_at = now() + interval '1 hour' WHERE id = $1", ended)
	b.exec("UPDATE hosts SET joined_at = now() - interval '50 days' WHERE id = $1", live)
	other, _, err := pki.NewCA(clock.System)
	if err != nil {
		t.Fatal(err)
	}
	at := func(ago time.Duration) *pki.Source {
		b.past.Advance(time.Now().Add(-ago).Sub(b.past.Now()))
		return identityBy(t, b.old, live)
	}
	long := at(pki.LeafLife + pki.RenewGrace + time.Hour)
	lately := at(pki.LeafLife + time.Hour)
	const in, forbidden, shut = http.StatusSwitchingProtocols, http.StatusForbidden, 0
	for _, c := range []struct {
		name        string
		who         *pki.Source
		renew, link int
		audited     []string
	}{
		{"the host itself", source, http.StatusOK, in, nil},
		{"its certificate ended an hour ago", lately, http.StatusOK, http.StatusUnauthorized, nil},
		{"and one that ended long ago", long, shut, shut, []string{"long ended"}},
		{"the same host of another authority", identityBy(t, other, live), shut, shut, []string{"another authority"}},
		{"a gateway", b.ca.GatewaySource("g"), shut, shut, []string{"not a host's"}},
		{"the hub", b.ca.HubSource(), shut, shut, []string{"not a host's"}},
		{"nobody", pki.NewSource(nil, clock.System), forbidden, forbidden, nil},
		{"a host that never was", identityBy(t, b.ca, ids.New()), forbidden, forbidden, []string{"not known"}},
		{"a removed host", removedSource, forbidden, forbidden, []string{ids.Format(ids.Host, removed), "removed"}},
		{"an identity that a later join has ended", endedSource, forbidden, forbidden, []string{ids.Format(ids.Host, ended), "later join"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := b.as(c.who)
			if cert, _ := c.who.Current(); cert == nil {
				i.cfg.GetClientCertificate = nil
			}
			request, _ := csr(t)
			if got, _ := i.call(http.MethodPost, wire.PathRenew, wire.RenewRequest{CSR: request}); got != c.renew {
				t.Errorf("renewing: %d, want %d", got, c.renew)
			}
			if got := i.link(); got != c.link {
				t.Errorf("linking: %d, want %d", got, c.link)
			}
			if c.audited != nil {
				b.untilAudited(c.audited...)
			}
		})
	}
	for _, path := range []string{wire.PathSync, wire.PathFacts, wire.PathJournal, wire.PathData} {
		if got, _ := b.as(source).call(http.MethodPost, path, struct{}{}); got != http.StatusNotFound {
			t.Errorf("%s without a link: %d", path, got)
		}
	}
	if got, _ := b.as(source).call(http.MethodGet, wire.PathProgram, nil); got != http.StatusNotFound {
		t.Errorf("a program without a link: %d", got)
	}
}

// Refused attempts do not fill the audit log, and a flood of strangers leaves room for what known hosts try.
func TestTheAuditOfRefusalsIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	now := clock.NewManual(time.Now())
	ca, _, err := pki.NewCA(now)
	if err != nil {
		t.Fatal(err)
	}
	d := door{t, New(Config{DB: b.db, Bus: b.bus, CA: ca, Clock: now, Log: quiet})}
	try := func(n int) {
		for range n {
			leaf, _ := identityBy(t, ca, ids.New()).Current()
			d.post(wire.PathRenew, wire.RenewRequest{CSR: d.request()}, leaf.Leaf)
			d.post(wire.PathJoin, wire.JoinRequest{Token: wire.NewJoinToken(ca.Digest()).String(), CSR: d.request()}, nil)
		}
	}
	try(maxRefusals + 10)
	if got := len(b.audited("host.refused")); got != maxRefusals+1 {
		t.Errorf("%d entries, want %d of hosts that never were and one of tokens", got, maxRefusals)
	}
	now.Advance(refusalWindow)
	try(1)
	entries := b.audited("host.refused")
	if len(entries) != maxRefusals+3 || !strings.Contains(entries[1], `"unwritten"`) {
		t.Errorf("%d entries after an hour: %v", len(entries), entries[:2])
	}
}

// A linked host gets and tells what is its own, whatever it says.
func TestALinkedHostCannotSpeakForAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.programs = release.Open(filepath.Join(t.TempDir(), "releases"))
	b.start()
	victim, _ := b.joined("victim")
	unit := b.place("victim", "theirs", "--secret-of-the-victim")
	_, source := b.joined("intruder")
	own := b.place("intruder", "own", "--of-the-intruder")
	l := b.linkAs(source)

	status, answer := b.say(l, http.MethodPost, wire.PathSync, `{"generation":-1,"host":"`+victim.String()+`","observed":{"units":[{"unit":"`+unit.String()+`","state":"faulted"}]}}`)
	if got := string(answer); status != http.StatusOK || !strings.Contains(got, "--of-the-intruder") || strings.Contains(got, "victim") || strings.Contains(got, unit.String()) {
		t.Errorf("%d %s", status, got)
	}
	if got := b.host("victim"); got.ID != victim || len(got.Observed.Units) != 0 {
		t.Errorf("the victim is observed by another: %+v", got)
	}

	facts := []wire.Fact{
		{Load: &wire.Load{Unit: unit, State: wire.StateReady}},
		{KV: &wire.KV{Unit: unit, Engine: ids.New(), Reset: true, BlockSize: 16, Stored: []uint64{1}}},
		{KV: &wire.KV{Unit: own, Head: unit, Engine: ids.New(), Reset: true, BlockSize: 16, Stored: []uint64{2}}},
		{Load: &wire.Load{Unit: own, State: wire.StateReady}},
	}
	var lines strings.Builder
	for _, f := range facts {
		lines.WriteString(text(t, f) + "\n")
	}
	if status, _ := b.say(l, http.MethodPost, wire.PathFacts, lines.String()); status != http.StatusNoContent {
		t.Errorf("facts: %d", status)
	}
	b.untilState(own, wire.StateReady)
	if b.load(unit).State != "" || b.holds(unit, 1) || b.holds(own, 2) {
		t.Error("facts of another host's unit were passed on")
	}
	b.untilAudited("127.0.0.1", "another host's unit")

	attempt := wire.Attempt{ID: ids.New(), Unit: unit, Kind: wire.KindServe, Prompt: 1, Ending: wire.EndComplete, StartedMS: 1, EndedMS: 2}
	if status, _ := b.say(l, http.MethodPost, wire.PathJournal, text(t, []wire.Attempt{attempt})); status != http.StatusNoContent {
		t.Errorf("journal: %d", status)
	}
	stored := 0
	err := b.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), "SELECT count(*) FROM attempt_journal").Scan(&stored)
	})
	if err != nil || stored != 0 {
		t.Errorf("%d records of another host's unit, %v", stored, err)
	}
	b.untilAudited("its journal")

	lines.Reset()
	for range 2 * maxForeign {
		lines.WriteString(text(t, wire.Fact{Load: &wire.Load{Unit: ids.New(), State: wire.StateReady}}) + "\n")
	}
	if status, _ := b.say(l, http.MethodPost, wire.PathFacts, lines.String()); status != http.StatusForbidden {
		t.Errorf("facts of many units: %d", status)
	}
	for _, path := range []string{wire.PathJoin, wire.PathRenew, wire.PathLink, wire.PathData, wire.DataPrefix + unit.String() + engine.ChatPath} {
		if status, _ := b.say(l, http.MethodPost, path, "{}"); status != http.StatusNotFound {
			t.Errorf("%s over a link: %d", path, status)
		}
	}
}

// Messages that no agent of ours writes are refused as what they are, and the link lives on.
func TestMessagesOfTheWrongForm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	_, source := b.joined("h1")
	unit := b.place("h1", "u1")
	l := b.linkAs(source)
	records := func(n int, change func(a *wire.Attempt)) string {
		all := make([]wire.Attempt, n)
		for i := range all {
			all[i] = wire.Attempt{ID: ids.New(), Unit: unit, Kind: wire.KindServe, Ending: wire.EndComplete, StartedMS: 1, EndedMS: 2}
			change(&all[i])
		}
		return text(t, all)
	}
	const invalid, large = http.StatusBadRequest, http.StatusRequestEntityTooLarge
	for _, c := range []struct {
		name, path, body string
		want             int
	}{
		{"a sync that is no JSON", wire.PathSync, "{", invalid},
		{"a sync of another shape", wire.PathSync, `{"generation":"1"}`, invalid},
		{"a sync with a zero character", wire.PathSync, `{"observed":{"agent_version":"a\u0000b"}}`, invalid},
		{"a sync above its limit", wire.PathSync, `{"observed":{"agent_version":"` + strings.Repeat("x", wire.MaxSyncBytes) + `"}}`, large},
		{"facts that are no JSON", wire.PathFacts, "load\n", invalid},
		{"a fact above its limit", wire.PathFacts, `{"load":{"state":"` + strings.Repeat("x", wire.MaxFactBytes) + `"}}` + "\n", invalid},
		{"a journal of another shape", wire.PathJournal, `{}`, invalid},
		{"too many records", wire.PathJournal, records(wire.MaxAttempts+1, func(*wire.Attempt) {}), large},
		{"records above the limit", wire.PathJournal, records(1, func(a *wire.Attempt) { a.Kind = strings.Repeat("x", maxJournalBytes) }), large},
		{"impossible records", wire.PathJournal, records(3, func(a *wire.Attempt) { a.Prompt = -1 }), http.StatusNoContent}, // and not stored
		{"a journal of this host", wire.PathJournal, records(1, func(*wire.Attempt) {}), http.StatusNoContent},
	} {
		if got, answer := b.say(l, http.MethodPost, c.path, c.body); got != c.want {
			t.Errorf("%s: %d %.80s, want %d", c.name, got, answer, c.want)
		}
	}
	stored := 0
	err := b.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), "SELECT count(*) FROM attempt_journal").Scan(&stored)
	})
	if err != nil || stored != 1 {
		t.Errorf("%d records, want the possible one: %v", stored, err)
	}
}

// A channel's name leads nowhere but into the folder of releases, and a manifest's file too.
func TestProgramsStayInTheirFolder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	releases := filepath.Join(dir, "releases")
	manifest := func(path, file string) {
		t.Helper()
		body := text(t, release.Channel{Version: "v1", Programs: map[string]release.Program{"linux/amd64": {File: file, Bytes: 100}}})
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(releases, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"secret": "SECRET", "releases/program": "PROGRAM"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	manifest(filepath.Join(dir, "outside.json"), "secret")
	manifest(filepath.Join(releases, "stable.json"), "program")
	for name, file := range map[string]string{"up": "../secret", "rooted": filepath.Join(dir, "secret"), "dots": "..", "dot": ".", "none": ""} {
		manifest(filepath.Join(releases, name+".json"), file)
	}
	b.programs = release.Open(releases)
	b.start()
	_, source := b.joined("h1")
	l := b.linkAs(source)
	for channel, want := range map[string]int{"stable": http.StatusOK, "up": 404, "rooted": 404, "dots": 404, "dot": 404, "none": 404, "../outside": 404,
		"%2e%2e/outside": 404, "..%2foutside": 404, "stable%00": 404, "": 404, "Stable": 404, strings.Repeat("a", 1000): 404} {
		status, body := b.say(l, http.MethodGet, wire.PathProgram+"?platform=linux/amd64&channel="+channel, "")
		if status != want && !(want == http.StatusOK && string(body) == "PROGRAM") || strings.Contains(string(body), "SECRET") {
			t.Errorf("channel %.40q: %d %.80s, want %d", channel, status, body, want)
		}
	}
	if status, _ := b.say(l, http.MethodGet, wire.PathProgram+"?channel=stable&platform=../../etc", ""); status != http.StatusNotFound {
		t.Errorf("another platform: %d", status)
	}
}

// What an engine's environment holds may be a key: its host gets it, the audit log does not.
func TestTheAuditHoldsNoEnvironment(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	_, source := b.joined("h1")
	_, err := b.hub.PlaceSimple(t.Context(), Placement{Host: "h1", Name: "u1", Model: b.model, Engine: engine.Sim, Upstream: "m",
		Spec: engine.Spec{Env: map[string]string{"HF_TOKEN": "hf_secret"}}}, tenants.System())
	if err != nil {
		t.Fatal(err)
	}
	if entries := strings.Join(b.audited("unit.place"), "\n"); !strings.Contains(entries, "HF_TOKEN") || strings.Contains(entries, "hf_secret") {
		t.Errorf("the audit log has %s", entries)
	}
	if _, answer := b.say(b.linkAs(source), http.MethodPost, wire.PathSync, `{"generation":-1}`); !strings.Contains(string(answer), "hf_secret") {
		t.Errorf("the host is sent %s", answer)
	}
}
