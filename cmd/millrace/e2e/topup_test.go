package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"millrace/cmd/millrace/trial"
	"millrace/web/webtest"
)

// A customer pays by clicking, as people do: the console, the payment provider's page (which is not real), and back. The
// credit is there when the page comes back. Then the kept card fills the balance up by itself.
func TestACustomerTopsUpInABrowser(t *testing.T) {
	b := webtest.Open(t)
	u := startUp(t, config(folder(t)))
	b.Look(webtest.Desktop, false)
	click := func(css string) chromedp.Action[chromedp.Void] { return chromedp.Click(chromedp.CSS(css)) }
	text := func(css string) string {
		return webtest.Eval[string](b, "document.querySelector(`"+css+"`)?.textContent.trim().replace(/\\s+/g, ' ') ?? ''")
	}
	newOwner(t, b, u)
	b.Do(chromedp.Navigate(u.Ready.URL + "/billing/credits?amount=50"))
	if got := text(".notice.warn"); !strings.HasPrefix(got, "Test payments.") {
		t.Errorf("the page does not say that no money moves: %q", got)
	}
	b.Do(click(`input[name="keep"]`), click("main form.form button.primary"))
	b.Arrive(`location.pathname.startsWith("/test-payments/pay/") && document.querySelector("#pay") !== null`)
	if got := text("main"); !strings.Contains(got, "No money moves") || !strings.Contains(got, "$50.00") {
		t.Errorf("the payment page says %q", got)
	}
	b.Shot("test-payment-page")
	b.Load(click("#pay"))
	if got := text("#topup-now .notice"); !strings.HasPrefix(got, "Paid. $50.00") {
		t.Fatalf("back from the payment: %q", got)
	}
	b.Do(chromedp.Navigate(u.Ready.URL + "/billing"))
	if got := text("tbody tr"); !strings.Contains(got, "Top-up by card, test payment") || !strings.Contains(got, "+$50.00") {
		t.Errorf("the ledger begins with %q", got)
	}
	rechargeFlow(t, b, u.Ready.URL, click, text)
	for _, e := range b.Errors() {
		t.Errorf("console: %s", e)
	}
}

// newOwner makes a customer without credit and signs its owner in.
func newOwner(t *testing.T, b *webtest.Browser, u *trial.Up) {
	t.Helper()
	const email = "pat@example.com"
	desk := deskOf(u)
	if err := desk.Do(t.Context(), http.MethodPost, "/orgs", map[string]any{"name": t.Name(), "owner_email": email}, nil); err != nil {
		t.Fatal(err)
	}
	press := chromedp.Click(chromedp.CSS("form button.primary"))
	b.Do(chromedp.Navigate(u.Ready.URL+"/login"), chromedp.SendKeys(chromedp.CSS(`input[name="email"]`), email))
	b.Load(press)
	b.Do(chromedp.Navigate(u.Ready.AdminLoginURL))
	b.Load(press)
	b.Do(chromedp.Navigate(u.Ready.URL + "/admin/outbox"))
	link := webtest.Eval[string](b, "document.querySelector(`[aria-label=\"Sign-in link of "+email+"\"]`)?.textContent ?? ''")
	if link == "" {
		t.Fatal("the outbox has no link of the owner")
	}
	b.Do(chromedp.Navigate(link))
	b.Load(press)
}

func rechargeFlow(t *testing.T, b *webtest.Browser, url string, click func(string) chromedp.Action[chromedp.Void], text func(string) string) {
	t.Helper()
	b.Do(chromedp.Navigate(url + "/billing/payment"))
	if got := text(".dl"); !strings.Contains(got, "visa …4242") {
		t.Fatalf("the kept card: %q", got)
	}
	b.Load(click(`a[href="/billing/payment/recharge"]`))
	for field, value := range map[string]string{"below": "60", "to": "80", "monthly_max": "100"} {
		b.Do(chromedp.SetValue(chromedp.CSS("#"+field), value))
	}
	b.Load(click(`button[value="preview"]`))
	const sentence = "Whenever my balance falls below $60, charge the card that I keep here (now visa …4242) without asking me again, to bring the balance to $80, and never more than $100 in a calendar month."
	if got := text("form.form p.strong"); !strings.Contains(got, sentence) {
		t.Errorf("the sentence of consent: %q", got)
	}
	b.Load(click(`button[value="agree"]`))
	if got := text(".tag"); got != "on" {
		t.Errorf("auto-recharge is %q", got)
	}
	b.Do(chromedp.Navigate(url + "/billing"))
	b.Arrive(`(document.querySelector("tbody tr")?.textContent ?? "").includes("auto-recharge") || (document.readyState === "complete" && location.reload(), false)`)
	if got := text(".hero .value"); got != "$80.00" {
		t.Errorf("the balance after it: %s", got)
	}
}
