package console

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/session"
	"millrace/web/ui"
)

// Payments is how an organization pays. Refused input is a fault.Invalid or fault.Conflict whose Param is the form field:
// amount, below, to or monthly_max.
type Payments interface {
	Paying(ctx context.Context, who session.Viewer) (Paying, error)
	// StartTopup makes a top-up, once per id, and says where it is paid.
	StartTopup(ctx context.Context, who session.Viewer, t NewTopup) (url string, err error)
	// Topup is one top-up, as it is at the payment provider now.
	Topup(ctx context.Context, who session.Viewer, id ids.ID) (Topup, error)
	// AddCard says where a card is given; once per id.
	AddCard(ctx context.Context, who session.Viewer, id ids.ID) (url string, err error)
	// CardAdded keeps the card that was given on the page with this name.
	CardAdded(ctx context.Context, who session.Viewer, page string) error
	RemoveCard(ctx context.Context, who session.Viewer) error
	// Receipts says where the payment provider shows receipts.
	Receipts(ctx context.Context, who session.Viewer) (url string, err error)
	// Consent is the sentence that SetRecharge agrees to, or says what is wrong with r.
	Consent(ctx context.Context, who session.Viewer, r Recharge) (string, error)
	// SetRecharge turns auto-recharge on. agreed is the sentence that was shown; when another one holds now, it is a Conflict with
	// the code fault.CodeSentenceChanged, and nothing is agreed to.
	SetRecharge(ctx context.Context, who session.Viewer, r Recharge, agreed string) error
	StopRecharge(ctx context.Context, who session.Viewer) error
	// ChargeConsent is the sentence that ChargeInvoices agrees to.
	ChargeConsent(ctx context.Context, who session.Viewer) (string, error)
	// ChargeInvoices has invoices charged to the kept card. agreed is the sentence that was shown, as with SetRecharge.
	ChargeInvoices(ctx context.Context, who session.Viewer, agreed string) error
	StopCharging(ctx context.Context, who session.Viewer) error // they are sent
}

// Paying is how an organization pays, and what it paid lately.
type Paying struct {
	Off      bool // customers cannot pay by card here
	Test     bool // no money moves
	Balance  Balance
	Least    money.Nano // of one top-up
	Most     money.Nano
	Topups   []Topup // newest first
	Card     *Card   // nil = none is kept
	Recharge RechargeState
	Charging Charging
}

// Charging is whether invoices are charged to the kept card, and what was agreed to; not On = they are sent.
type Charging struct {
	On        bool
	Consent   string // "" = not known
	ConsentBy string
	ConsentAt time.Time
}

// Topup is one sum that was paid, or is to be.
type Topup struct {
	ID      ids.ID
	At      time.Time
	Amount  money.Nano
	Back    money.Nano // refunded or disputed
	Auto    bool
	State   string // created, open, processing, retrying, succeeded, failed or expired
	URL     string // where it is paid, while it is open
	Failure string // the payment provider's code
	Next    time.Time
}

// Card is a kept card.
type Card struct {
	Brand, Last4 string
	Expiry       time.Time // zero = not known
}

// NewTopup asks for a top-up.
type NewTopup struct {
	ID     ids.ID // chosen by the form
	Amount money.Nano
	Keep   bool // the card, for auto-recharge
}

// Recharge is what a customer lets be charged without being asked.
type Recharge struct{ Below, To, MonthlyMax money.Nano }

// RechargeState is auto-recharge as it is.
type RechargeState struct {
	Recharge
	On        bool
	Paused    string // why, in a sentence with what to do; "" = not
	ThisMonth money.Nano
	MonthEnds time.Time
	Consent   string
	ConsentBy string
	ConsentAt time.Time
}

const (
	creditsTop = "/billing/credits"
	paymentTop = "/billing/payment"
	chargeTop  = paymentTop + "/invoices"
)

func topupPath(id ids.ID) string { return creditsTop + "/" + ids.Format(ids.Topup, id) }

// registerPay adds the routes of paying.
func (p *pages) registerPay(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	g.GET(creditsTop, in(p.credits))
	g.POST(creditsTop, in(p.addCredit))
	g.GET(creditsTop+"/:id", in(p.topup))
	g.GET(paymentTop, in(p.payment))
	g.POST(paymentTop+"/card", in(p.addCard))
	g.GET(paymentTop+"/card/remove", in(p.confirmRemoveCard))
	g.POST(paymentTop+"/card/remove", in(p.removeCard))
	g.POST(paymentTop+"/receipts", in(p.receipts))
	g.GET(paymentTop+"/recharge", in(p.rechargeForm))
	g.POST(paymentTop+"/recharge", in(p.setRecharge))
	g.POST(paymentTop+"/recharge/stop", in(p.stopRecharge))
	g.GET(chargeTop, in(p.chargeForm))
	g.POST(chargeTop, in(p.chargeInvoices))
	g.POST(chargeTop+"/stop", in(p.stopCharging))
}

// creditsView is the page of credits ready to draw.
type creditsView struct {
	Paying
	page    ui.Page
	form    *ui.Form
	id      string
	presets []ui.Segment
	amount  string
	list    ui.Grid
	may     bool
}

// presets are sums that people choose, in dollars.
var presets = []string{"10", "25", "50", "100", "500"}

func (p *pages) credits(c echo.Context) error {
	return p.showCredits(c, http.StatusOK, &ui.Form{}, ids.New())
}

func (p *pages) showCredits(c echo.Context, status int, f *ui.Form, id ids.ID) error {
	who := session.Must(c)
	x, err := p.Pay.Paying(c.Request().Context(), who)
	if err != nil {
		return err
	}
	v := creditsView{Paying: x, form: f, id: id.String(), may: who.May.Has(session.PermBilling) && !x.Off, amount: "25"}
	v.page = ui.Page{Title: "Add credits", Path: "/billing", Up: &ui.Link{Href: "/billing", Text: "Billing"}, Events: []string{"credit"}}
	if a := c.QueryParam("amount"); a != "" {
		if n, err := money.ParseUSD(a); err == nil && n > 0 {
			v.amount = a
		}
	}
	for _, a := range presets {
		v.presets = append(v.presets, ui.Segment{Href: creditsTop + "?amount=" + a, Text: "$" + a, On: a == v.amount})
	}
	v.list = topupGrid(x.Topups)
	return ui.Render(c, status, creditsPage(v))
}

func topupGrid(list []Topup) ui.Grid {
	g := ui.Grid{Caption: "Top-ups, newest first", Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "Amount", Num: true}, {Name: "State"}, {Name: "Began by"}, {Name: "Given back", Num: true}},
		Empty:   ui.Blank{Icon: "receipt", Title: "No top-ups yet", Text: "What you pay by card is listed here, from the click to the credit."}}
	for _, t := range list {
		tone, word := t.state()
		began, back := "you", ui.T("–")
		if t.Auto {
			began = "auto-recharge"
		}
		if t.Back > 0 {
			back = ui.USD(t.Back)
		}
		when := ui.At(t.At)
		when.Href = topupPath(t.ID)
		g.Rows = append(g.Rows, ui.Row{when, ui.USD(t.Amount), ui.N(ui.Tag(tone, word), word), ui.T(began), back})
	}
	return g
}

func (t Topup) state() (ui.Tone, string) {
	switch t.State {
	case "succeeded":
		if t.Back > 0 {
			return ui.Warn, "given back"
		}
		return ui.Good, "paid"
	case "processing":
		return ui.Warn, "on its way"
	case "retrying":
		return ui.Warn, "declined, tried again"
	case "failed":
		return ui.Bad, "declined"
	case "expired":
		return ui.Quiet, "not paid"
	}
	return ui.Quiet, "not paid yet"
}

func (p *pages) addCredit(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	t := NewTopup{Keep: f.Get("keep") != ""}
	if t.ID, err = ids.Parse(ids.Topup, f.Get("id")); err != nil {
		f.Fail("", "This form was incomplete. Please send it again.")
	}
	t.Amount = readDollars(f, "amount")
	if f.OK() {
		url, err := p.Pay.StartTopup(c.Request().Context(), who, t)
		if err == nil {
			return leave(c, url, topupPath(t.ID), "Add "+ui.FormatMoney(t.Amount))
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showCredits(c, http.StatusUnprocessableEntity, f, ids.New())
}

// readDollars reads an amount of whole cents.
func readDollars(f *ui.Form, field string) money.Nano {
	n, err := money.ParseUSD(f.Get(field))
	if err != nil || n <= 0 || n%(money.NanoPerUSD/100) != 0 {
		f.Fail(field, "Enter dollars like 50 or 12.50.")
		return 0
	}
	return n
}

// leave leads to a page of the payment provider. A form must not be redirected to another site (the content policy forbids
// it), so the answer is a page that goes on by itself.
func leave(c echo.Context, url, instead, title string) error {
	if url == "" {
		return c.Redirect(http.StatusSeeOther, instead)
	}
	ui.NoStore(c)
	c.Response().Header().Set("Refresh", "0; url="+url)
	return ui.Render(c, http.StatusOK, leavePage(ui.Page{Title: title, Path: "/billing", Up: &ui.Link{Href: "/billing", Text: "Billing"}}, url))
}

// topupView is the page of one top-up ready to draw.
type topupView struct {
	Topup
	page    ui.Page
	self    string
	balance Balance
	test    bool
	waits   bool
	may     bool
}

func (p *pages) topup(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	id, err := pathID(c, ids.Topup)
	if err != nil {
		return err
	}
	t, err := p.Pay.Topup(ctx, who, id)
	if err != nil {
		return err
	}
	x, err := p.Pay.Paying(ctx, who)
	if err != nil {
		return err
	}
	v := topupView{Topup: t, self: topupPath(id), balance: x.Balance, test: x.Test, waits: t.State == "processing" || t.State == "created", may: who.May.Has(session.PermBilling)}
	head := "Top-up of " + ui.FormatMoney(t.Amount)
	v.page = ui.Page{Title: head + ", " + t.At.In(who.Location()).Format("2 January 15:04"), Head: head, Path: "/billing", Up: &ui.Link{Href: creditsTop, Text: "Add credits"}, Events: []string{"credit"}}
	return ui.Render(c, http.StatusOK, topupPage(v))
}

// declined says the payment provider's code in words.
func (t Topup) declined() string {
	switch t.Failure {
	case "":
		return "The payment did not go through."
	case "insufficient_funds":
		return "The card has insufficient funds."
	case "authentication_required":
		return "The bank wants you to confirm the payment yourself."
	case "expired_card":
		return "The card has expired."
	}
	return "The card was declined."
}

// payView is the page of card and auto-recharge ready to draw.
type payView struct {
	Paying
	page ui.Page
	may  bool
	id   string
}

func (p *pages) payment(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	if page := c.QueryParam("session"); page != "" && who.May.Has(session.PermBilling) {
		if err := p.Pay.CardAdded(ctx, who, page); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		return c.Redirect(http.StatusSeeOther, paymentTop)
	}
	x, err := p.Pay.Paying(ctx, who)
	if err != nil {
		return err
	}
	v := payView{Paying: x, may: who.May.Has(session.PermBilling) && !x.Off, id: ids.New().String()}
	v.page = ui.Page{Title: "Card and auto-recharge", Path: "/billing", Up: &ui.Link{Href: "/billing", Text: "Billing"}, Events: []string{"credit"}}
	switch c.QueryParam("done") {
	case "recharge":
		v.page.Toast = "Auto-recharge is on."
	case "stopped":
		v.page.Toast = "Auto-recharge is off. Nothing is charged without you."
	case "charge":
		v.page.Toast = "New invoices are charged to your card."
	case "sent":
		v.page.Toast = "New invoices are sent to you. None is charged without you."
	case "removed":
		v.page.Toast = "The card is forgotten."
	}
	return ui.Render(c, http.StatusOK, paymentPage(v))
}

func rechargeNote(r RechargeState) string {
	switch {
	case !r.On:
		return "auto-recharge is off"
	case r.Paused != "":
		return "auto-recharge is paused"
	}
	return "auto-recharge below " + ui.FormatMoney(r.Below)
}

// trigger makes the page look again: when credit arrives, and by itself while it waits for the money.
func (v topupView) trigger() string {
	if v.waits {
		return "credit from:body, every 3s"
	}
	return "credit from:body"
}
