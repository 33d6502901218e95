package console

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace/internal/money"
	"millrace/internal/usage"
)

// The page's sum is the rating's sum: every class is shown, and one rounding leads to what was charged.
func TestAnExplanationAddsUpToTheCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r RequestDetail
		for c := range r.Usage {
			r.Usage[c] = rapid.Int64Range(0, usage.MaxTokens).Draw(t, usage.Class(c).String())
			r.Prices[c] = money.Pico(rapid.Int64Range(0, 100_000_000).Draw(t, "price"))
		}
		exact, ok := r.Prices.Cost(r.Usage)
		if !ok {
			t.Skip("beyond what one event may cost")
		}
		r.Cost = exact.Nano()
		x := explain(r)
		var sum money.Pico
		for _, l := range x.lines {
			sum += l.cost
		}
		if sum != exact || x.exact != exact || !x.agrees || x.nano != r.Cost {
			t.Fatalf("lines add up to %d, exact %d, shown %d → %d, charged %d", sum, exact, x.exact, x.nano, r.Cost)
		}
		r.Cost++
		if explain(r).agrees {
			t.Fatal("a charge one nano-dollar off is called right")
		}
	})
}

func TestRunway(t *testing.T) {
	usd := func(s string) money.Nano {
		n, err := money.ParseUSD(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct{ balance, week, want string }{
		{"182.40", "142.10", "about 8 days at the last 7-day rate"},
		{"20", "142.10", "less than a day at the last 7-day rate"},
		{"30", "142.10", "about 1 day at the last 7-day rate"},
		{"10000", "1", "more than a year at the last 7-day rate"},
		{"10", "0", "nothing spent in the last 7 days"},
		{"10", "0.000000001", "more than a year at the last 7-day rate"},
		{"0", "5", "nothing left: requests are refused until credit is added"},
		{"-3", "5", "nothing left: requests are refused until credit is added"},
	} {
		h := homeView{Home: Home{Balance: Balance{Total: usd(c.balance)}, SpentWeek: usd(c.week)}}
		if got := h.runway(); got != c.want {
			t.Errorf("%s at %s a week: %q, want %q", c.balance, c.week, got, c.want)
		}
	}
}

// The examples are run by people in their shells: a message must never leave its quotes.
func TestSamplesQuoteWhatWasTyped(t *testing.T) {
	half := 0.5
	ask := Ask{Model: `a"b`, System: "be <brief>", Message: "it's $(rm -rf /) `x`", MaxTokens: 20, Temperature: &half}
	curl, err := curlSample("https://api.example", "KEY", ask)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(curl, "-d ")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+body).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got chatRequest
	if err := json.Unmarshal(out, &got); err != nil || got.Model != ask.Model || got.Messages[1].Content != ask.Message || *got.Temperature != half {
		t.Errorf("the shell passes on %s (%v)", out, err)
	}
	python := pythonSample("https://api.example", "KEY", ask)
	for _, want := range []string{`model="a\"b"`, `"be <brief>"`, "max_tokens=20", "temperature=0.5", `base_url="https://api.example/v1"`} {
		if !strings.Contains(python, want) {
			t.Errorf("%s is not in:\n%s", want, python)
		}
	}
}

func TestAnswersThatAreNoCompletion(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
	}{{200, ""}, {200, "<html>"}, {200, `{"choices":[]}`}, {502, "bad gateway"}} {
		if a, err := readAnswer(c.status, []byte(c.body)); err == nil {
			t.Errorf("%d %q was read as %+v", c.status, c.body, a)
		}
	}
	a, err := readAnswer(200, []byte(`{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":10,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}`))
	if err != nil || a.Usage != (usage.Vector{usage.Input: 6, usage.Cached: 4, usage.Output: 5, usage.Reasoning: 2, usage.Requests: 1}) {
		t.Errorf("%+v %v", a, err)
	}
}
