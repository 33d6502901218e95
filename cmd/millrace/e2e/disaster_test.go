package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/cmd/millrace/trial"
)

// reconcile runs `millrace reconcile` on a data folder, whether an `up` runs on it or not.
func reconcile(t testing.TB, data string) (explained bool, report string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, millrace, "reconcile", "--data", data)
	cmd.Env = append(os.Environ(), "DATABASE_URL=")
	out, err := cmd.CombinedOutput()
	code := cmd.ProcessState.ExitCode()
	if code > 1 || err != nil && code != 1 || !strings.Contains(string(out), "Compared up to") {
		t.Fatalf("reconcile: %v\n%s", err, out)
	}
	return code == 0, string(out)
}

// explained wants a report without an unexplained difference, and gives it.
func explained(t testing.TB, data string) string {
	t.Helper()
	ok, report := reconcile(t, data)
	if !ok {
		t.Errorf("something is unexplained:\n%s", report)
	}
	return report
}

// at moves a customer to the next life of his `up`.
func (c *customer) at(u *trial.Up) {
	c.url, c.desk = u.Ready.URL, deskOf(u)
}

func TestReconcileBesideARunningUpAndOnAStoppedOne(t *testing.T) {
	c := config(folder(t))
	u := startUp(t, c)
	mine := newCustomer(t, u, "5")
	got := mine.must(t, trial.Ask{Prompt: "count me", MaxTokens: 77})
	mine.bill(t, got.Request)
	explained(t, c.Data)
	stopUp(t, u)
	if strings.Contains(u.Said(), "WARNING") {
		t.Errorf("a warning without a cause:\n%s", u.Said())
	}
	report := explained(t, c.Data)
	if !strings.Contains(report, "billed") || !strings.Contains(report, "77") || strings.Contains(report, "rated no further") {
		t.Errorf("the tokens are not in it:\n%s", report)
	}
	out, err := exec.Command(millrace, "reconcile", "--data", filepath.Join(t.TempDir(), "nowhere")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is no data folder") {
		t.Errorf("%v: %s", err, out)
	}
}

// The log is gone with events in it that were not rated: they can no longer be billed, which is said; all else goes on.
func TestLogGone(t *testing.T) {
	c := config(folder(t))
	u := startUp(t, c)
	mine := newCustomer(t, u, "5")
	kept := mine.must(t, trial.Ask{Prompt: "rated in time", MaxTokens: 50})
	bill := mine.bill(t, kept.Request)
	lost := make([]trial.Answer, 8)
	for i := range lost {
		lost[i] = mine.must(t, trial.Ask{Prompt: "at the last moment", MaxTokens: 10})
	}
	if err := u.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(c.Data, "nats")); err != nil {
		t.Fatal(err)
	}
	u = startUp(t, c)
	if !strings.Contains(u.Said(), "WARNING: the usage log is gone") {
		t.Errorf("nobody is told:\n%s", u.Said())
	}
	mine.at(u)
	agrees(t, kept, mine.bill(t, kept.Request))
	after := mine.must(t, trial.Ask{Prompt: "a new log", MaxTokens: 20})
	charged := mine.bill(t, after.Request).Charged.Nano + bill.Charged.Nano
	eventually(t, "the killed gateway's money is back", func() bool { return mine.balance(t).Outstanding.Nano == 0 })
	used := mine.used(t)
	if used.Charged.Nano < charged || used.Requests > int64(2+len(lost)) {
		t.Errorf("usage %+v", used)
	}
	if left := mine.balance(t).Promotional.Nano; left != 5_000_000_000-used.Charged.Nano {
		t.Errorf("%d left, %d charged", left, used.Charged.Nano)
	}
	if used.Requests == int64(2+len(lost)) {
		t.Skip("all of them were rated before the kill: there is nothing to be missed")
	}
	var report string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(report)
		}
	})
	eventually(t, "reconcile says what is missing", func() bool {
		report = explained(t, c.Data)
		return strings.Contains(report, "lost with a gateway") || strings.Contains(report, "in a part of the log that is gone")
	})
}

// An older copy of the database is put back: what it has forgotten is rated again from the log, once.
func TestAnOldDatabaseRestored(t *testing.T) {
	c := config(folder(t))
	u := startUp(t, c)
	mine := newCustomer(t, u, "5")
	first := mine.must(t, trial.Ask{Prompt: "in the copy", MaxTokens: 50})
	mine.bill(t, first.Request)
	stopUp(t, u)
	database, copied := filepath.Join(c.Data, "postgres"), filepath.Join(c.Data, "..", "copy")
	run(t, "cp", "-a", database, copied)

	u = startUp(t, c)
	mine.at(u)
	forgotten := make([]trial.Answer, 5)
	for i := range forgotten {
		forgotten[i] = mine.must(t, trial.Ask{Prompt: "not in the copy", MaxTokens: 30, Stream: i%2 == 0})
		mine.bill(t, forgotten[i].Request)
	}
	before := mine.balance(t).Promotional
	stopUp(t, u)
	if err := os.RemoveAll(database); err != nil {
		t.Fatal(err)
	}
	run(t, "mv", copied, database)

	u = startUp(t, c)
	mine.at(u)
	for _, got := range append(forgotten, first) {
		agrees(t, got, mine.bill(t, got.Request))
	}
	if after := mine.balance(t).Promotional; after != before {
		t.Errorf("balance %+v, was %+v", after, before)
	}
	if used := mine.used(t); used.Requests != int64(1+len(forgotten)) || used.Overrun.Nano != 0 {
		t.Errorf("usage %+v", used)
	}
	// The gateway's own epoch may be void too: it says so with 503 and begins another.
	eventually(t, "life goes on", func() bool { return mine.chat(trial.Ask{Prompt: "life goes on", MaxTokens: 5}).Whole })
	eventually(t, "money of the forgotten life is back", func() bool { return mine.balance(t).Outstanding.Nano == 0 })
	stopUp(t, u)
	explained(t, c.Data)
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
