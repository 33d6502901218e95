package webtest

import "millrace/internal/ids"

// Page is one page to look at.
type Page struct {
	Name   string // of golden file and screenshot
	Path   string
	Who    string // cookie; empty is a stranger
	State  State
	Status int // expected; 0 is 200
	Form   string
}

func path(prefix, kind string, id ids.ID) string { return prefix + ids.Format(kind, id) }

// Pages are all pages with something on them, and the empty ones that a newcomer meets.
func Pages() []Page {
	key := path("/keys/", ids.Key, id(kindKey, 1))
	newKey := "id=" + id(kindKey, 77).String() + "&project=" + ids.Format(ids.Project, id(kindProject, 1))
	out := []Page{
		{Name: "login", Path: "/login"},
		{Name: "prices", Path: "/prices"},
		{Name: "login-link", Path: "/login/link?t=secret"},
		{Name: "login-sent", Path: "/login", Form: "email=dana@acme.example"},
		{Name: "login-stale", Path: "/login/link", Form: "t=wrong", Status: 401},
		{Name: "home", Path: "/", Who: Member},
		{Name: "keys", Path: "/keys", Who: Member},
		{Name: "keys-new", Path: "/keys/new", Who: Member},
		{Name: "keys-new-refused", Path: "/keys", Who: Member, Form: "cap=abc&project=x&" + newKey, Status: 422},
		{Name: "keys-secret", Path: "/keys", Who: Member, Form: "name=nightly&" + newKey},
		{Name: "key", Path: key, Who: Member},
		{Name: "key-revoke", Path: key + "/revoke", Who: Member},
		{Name: "usage", Path: "/usage", Who: Member},
		{Name: "usage-today-key", Path: "/usage?range=today&group=key&metric=tokens", Who: Member},
		{Name: "usage-day", Path: "/usage?range=7d&group=day&metric=requests", Who: Member},
		{Name: "usage-export", Path: "/usage/export?from=2026-11-01&to=2026-11-30", Who: Member},
		{Name: "requests", Path: "/requests", Who: Member},
		{Name: "request", Path: path("/requests/", ids.Request, id(kindRequest, 5)), Who: Member},
		{Name: "playground", Path: "/playground", Who: Member},
		{Name: "playground-answer", Path: "/playground", Who: Member, Form: "model=acme/llama-70b&message=hello&max_tokens=20"},
		{Name: "models", Path: "/models", Who: Member},
		{Name: "billing", Path: "/billing", Who: Member},
		{Name: "credits", Path: "/billing/credits?amount=50", Who: Member},
		{Name: "credits-refused", Path: "/billing/credits", Who: Member, Form: "amount=1&id=" + id(kindTopup, 99).String(), Status: 422},
		{Name: "topup-open", Path: path("/billing/credits/", ids.Topup, id(kindTopup, 1)), Who: Member},
		{Name: "topup-waits", Path: path("/billing/credits/", ids.Topup, id(kindTopup, 2)), Who: Member},
		{Name: "topup-retried", Path: path("/billing/credits/", ids.Topup, id(kindTopup, 3)), Who: Member},
		{Name: "topup-paid", Path: path("/billing/credits/", ids.Topup, id(kindTopup, 4)), Who: Member},
		{Name: "topup-back", Path: path("/billing/credits/", ids.Topup, id(kindTopup, 5)), Who: Member},
		{Name: "payment", Path: "/billing/payment", Who: Member},
		{Name: "card-remove", Path: "/billing/payment/card/remove", Who: Member},
		{Name: "recharge", Path: "/billing/payment/recharge", Who: Member},
		{Name: "recharge-refused", Path: "/billing/payment/recharge", Who: Member, Form: "below=50&to=20&monthly_max=x&step=preview", Status: 422},
		{Name: "recharge-agree", Path: "/billing/payment/recharge", Who: Member, Form: "below=20&to=100&monthly_max=500&step=preview"},
		{Name: "recharge-changed", Path: "/billing/payment/recharge", Who: Member, Form: "below=20&to=100&monthly_max=500&step=agree&sentence=Charge+another+card.", Status: 422},
		{Name: "statement", Path: "/billing/statement", Who: Member},
		{Name: "statement-day", Path: "/billing/statement/2026-11-28", Who: Member},
		{Name: "invoices", Path: "/billing/invoices", Who: Member},
		{Name: "invoice-overdue", Path: path("/billing/invoices/", ids.Invoice, id(kindInvoice, 1)), Who: Member},
		{Name: "invoice-paid", Path: path("/billing/invoices/", ids.Invoice, id(kindInvoice, 2)), Who: Member},
		{Name: "invoice-void", Path: path("/billing/invoices/", ids.Invoice, id(kindInvoice, 3)), Who: Member},
		{Name: "invoices-so-far", Path: "/billing/invoices/so-far", Who: Member},
		{Name: "billing-details", Path: "/billing/details", Who: Member},
		{Name: "billing-details-bad", Path: "/billing/details", Who: Member, Form: "legal_name=Acme&country=Germany", Status: 422},
		{Name: "limits", Path: "/limits", Who: Member},
		{Name: "limits-raise", Path: path("/limits/key/", ids.Key, id(kindKey, 1)) + "/raise", Who: Member},
		{Name: "limits-raise-bad", Path: path("/limits/key/", ids.Key, id(kindKey, 1)) + "/raise", Who: Member, Form: "to=1&lasts=24h", Status: 422},
		{Name: "webhooks", Path: "/limits/webhooks", Who: Member},
		{Name: "webhooks-bad", Path: "/limits/webhooks", Who: Member, Form: "url=http://x.example", Status: 422},
		{Name: "webhooks-secret", Path: "/limits/webhooks", Who: Member, Form: "url=https://acme.example/in"},
		{Name: "webhooks-remove", Path: path("/limits/webhooks/", "hook", id(kindHook, 1)) + "/remove", Who: Member},
		{Name: "limits-key", Path: path("/limits/key/", ids.Key, id(kindKey, 1)), Who: Member},
		{Name: "members", Path: "/members", Who: Member},
		{Name: "audit", Path: "/audit", Who: Member},
		{Name: "not-found", Path: "/nowhere", Who: Member, Status: 404},
		{Name: "not-allowed", Path: "/keys/new", Who: Reader, Status: 403},
	}
	out = append(out, operatorPages()...)
	out = append(out, morePages()...)
	out = append(out, chargePages()...)
	for name, who := range map[string]string{"": Member, "keys": Member, "usage": Member, "requests": Member, "playground": Member, "models": Member, "billing": Member, "billing/credits": Member, "billing/payment": Member, "billing/invoices": Member, "billing/invoices/so-far": Member,
		"admin": Operator, "admin/customers": Operator, "admin/models": Operator, "admin/revenue": Operator, "admin/months": Operator, "admin/invoices": Operator, "admin/margin": Operator, "admin/hosts": Operator, "admin/units": Operator, "admin/reconcile": Operator, "admin/exceptions": Operator, "admin/payments": Operator} {
		out = append(out, Page{Name: "empty-" + name, Path: "/" + name, Who: who, State: Fresh})
	}
	return out
}

func operatorPages() []Page {
	org, model, host, unit := path("/admin/customers/", ids.Org, id(kindOrg, 1)), path("/admin/models/", ids.Model, id(kindModel, 0)), path("/admin/hosts/", ids.Host, id(kindHost, 7)), path("/admin/units/", ids.Unit, id(kindUnit, 1))
	bill := func(org, n int) string {
		return path("/admin/customers/", ids.Org, id(kindOrg, org)) + path("/invoices/", ids.Invoice, id(kindInvoice, n))
	}
	aside := func(n int) string { return path("/admin/quarantine/", ids.Aside, id(kindAside, n)) }
	return []Page{
		{Name: "admin", Path: "/admin", Who: Operator},
		{Name: "admin-customers", Path: "/admin/customers", Who: Operator},
		{Name: "admin-customers-new", Path: "/admin/customers/new", Who: Operator},
		{Name: "admin-customer", Path: org, Who: Operator},
		{Name: "admin-credit", Path: org + "/credit", Who: Operator},
		{Name: "admin-limit", Path: org + "/credit-limit", Who: Operator},
		{Name: "admin-limit-bad", Path: org + "/credit-limit", Who: Operator, Form: "credit_limit=x&reason=", Status: 422},
		{Name: "admin-adjust", Path: org + "/adjust", Who: Operator},
		{Name: "admin-adjust-bad", Path: org + "/adjust", Who: Operator, Form: "amount=x&reason=", Status: 422},
		{Name: "admin-reverse", Path: org + "/reverse?txn=" + ids.Format(ids.Txn, id(kindTxn, 301)), Who: Operator},
		{Name: "admin-statement", Path: org + "/statement", Who: Operator},
		{Name: "admin-approvals", Path: "/admin/approvals", Who: Operator},
		{Name: "admin-approvals-refuse", Path: path("/admin/approvals/", "creq", id(kindAsk, 1)) + "/refuse", Who: Operator},
		{Name: "admin-models", Path: "/admin/models", Who: Operator},
		{Name: "admin-model", Path: model, Who: Operator},
		{Name: "admin-price", Path: model + "/price", Who: Operator},
		{Name: "admin-price-check", Path: model + "/price", Who: Operator, Form: "input=0.00000028&cached=0.06&output=0.90&reasoning=0.90&step=preview", Status: 422},
		{Name: "admin-price-guard", Path: model + "/price", Who: Operator, Form: "input=0.000028&cached=0.06&output=0.90&reasoning=0.90&step=preview"},
		{Name: "admin-price-guard-loss", Path: model + "/price", Who: Operator, Form: "input=0.10&cached=0.03&output=0.30&reasoning=0.30&tier1_above=131072&tier1_input=0.28&window1_days=sat+sun&window1_from=00:00&window1_to=24:00&window1_percent=70&priority_percent=150&step=preview"},
		{Name: "admin-price-terms-bad", Path: model + "/price", Who: Operator, Form: "input=0.28&output=0.90&tier1_above=x&tier1_input=0.30&window1_from=22:00&batch_percent=half&step=preview", Status: 422},
		{Name: "admin-price-cancel", Path: model + "/versions/" + ids.Format(ids.Price, id(kindPrice, 90)) + "/cancel", Who: Operator},
		{Name: "admin-revenue", Path: "/admin/revenue", Who: Operator},
		{Name: "admin-invoices", Path: "/admin/invoices", Who: Operator},
		{Name: "admin-invoice-open", Path: bill(2, 4), Who: Operator},
		{Name: "admin-invoice-draft", Path: bill(4, 6), Who: Operator},
		{Name: "admin-invoice-draft-bad", Path: bill(4, 6) + "/finalize", Who: Operator, Form: "x=1", Status: 422},
		{Name: "admin-invoice-given-up", Path: bill(3, 5), Who: Operator},
		{Name: "admin-invoice-payment", Path: bill(1, 1) + "/payment", Who: Operator},
		{Name: "admin-invoice-payment-bad", Path: bill(1, 1) + "/payment", Who: Operator, Form: "amount=0.001&reference=&received_at=soon", Status: 422},
		{Name: "admin-invoice-reversal", Path: bill(1, 1) + path("/payments/", "pay", id(kindPayment, 1)) + "/reversal", Who: Operator},
		{Name: "admin-invoice-reversal-bad", Path: bill(1, 1) + path("/payments/", "pay", id(kindPayment, 1)) + "/reversal", Who: Operator, Form: "reason=+", Status: 422},
		{Name: "admin-invoice-reversal-gone", Path: bill(1, 2) + path("/payments/", "pay", id(kindPayment, 1)) + "/reversal", Who: Operator, Status: 404},
		{Name: "admin-invoice-reversal-provider", Path: bill(1, 2) + path("/payments/", "pay", id(kindPayment, 2)) + "/reversal", Who: Operator, Status: 409},
		{Name: "admin-invoice-disputed", Path: bill(1, 2), Who: Operator},
		{Name: "admin-invoice-send", Path: bill(1, 2) + path("/credit-notes/", ids.Note, id(kindNote, 2)) + "/sent-by-hand", Who: Operator},
		{Name: "admin-invoice-send-bad", Path: bill(1, 2) + path("/credit-notes/", ids.Note, id(kindNote, 2)) + "/sent-by-hand", Who: Operator, Form: "reason=+", Status: 422},
		{Name: "admin-invoice-send-not", Path: bill(1, 3) + path("/credit-notes/", ids.Note, id(kindNote, 3)) + "/sent-by-hand", Who: Operator, Status: 409},
		{Name: "admin-invoice-void", Path: bill(1, 3), Who: Operator},
		{Name: "admin-invoice-note", Path: bill(1, 1) + "/credit-note", Who: Operator},
		{Name: "admin-invoice-note-bad", Path: bill(1, 1) + "/credit-note", Who: Operator, Form: "amount=9999&reason=sorry&back=credit", Status: 422},
		{Name: "admin-invoice-write-off", Path: bill(1, 1) + "/write-off", Who: Operator},
		{Name: "admin-invoice-write-off-bad", Path: bill(1, 1) + "/write-off", Who: Operator, Form: "reason=+", Status: 422},
		{Name: "admin-months", Path: "/admin/months", Who: Operator},
		{Name: "admin-month-open", Path: "/admin/months/2026-11", Who: Operator},
		{Name: "admin-month-waits", Path: "/admin/months/2026-10", Who: Operator},
		{Name: "admin-month-frozen", Path: "/admin/months/2026-09", Who: Operator},
		{Name: "admin-month-closed", Path: "/admin/months/2026-08", Who: Operator},
		{Name: "admin-month-close", Path: "/admin/months/2026-09/close", Who: Operator},
		{Name: "admin-month-close-bad", Path: "/admin/months/2026-09/close", Who: Operator, Form: "confirm=september", Status: 422},
		{Name: "admin-month-close-not", Path: "/admin/months/2026-10/close", Who: Operator},
		{Name: "admin-month-draft-not", Path: "/admin/months/2026-11/draft", Who: Operator, Form: "again=1", Status: 422},
		{Name: "admin-margin", Path: "/admin/margin", Who: Operator},
		{Name: "admin-gpu-price", Path: "/admin/margin/price?provider=own&region=berlin&kind=reserved", Who: Operator},
		{Name: "admin-gpu-price-refused", Path: "/admin/margin/price", Who: Operator, Form: "provider=own&region=berlin&kind=reserved&price=cheap", Status: 422},
		{Name: "admin-revenue-export", Path: "/admin/revenue/export?month=2026-11", Who: Operator},
		{Name: "admin-hosts", Path: "/admin/hosts", Who: Operator},
		{Name: "admin-host", Path: host, Who: Operator},
		{Name: "admin-join-form", Path: "/admin/hosts/join", Who: Operator},
		{Name: "admin-join", Path: "/admin/hosts/join", Who: Operator, Form: "name=ber-04"},
		{Name: "admin-join-refused", Path: "/admin/hosts/join", Who: Operator, Form: "name=ber 04", Status: 422},
		{Name: "admin-units", Path: "/admin/units", Who: Operator},
		{Name: "admin-unit", Path: unit, Who: Operator},
		{Name: "admin-attach", Path: "/admin/units/attach", Who: Operator},
		{Name: "admin-detach", Path: path("/admin/units/", ids.Unit, id(kindUnit, 5)) + "/detach", Who: Operator},
		{Name: "admin-fleet", Path: "/admin/fleet", Who: Operator},
		{Name: "admin-fleet-trouble", Path: "/admin/fleet?state=trouble", Who: Operator},
		{Name: "admin-fleet-search", Path: "/admin/fleet?q=LLAMA&state=", Who: Operator},
		{Name: "admin-fleet-nothing", Path: "/admin/fleet?q=nowhere", Who: Operator},
		{Name: "admin-placed-unit", Path: path("/admin/fleet/units/", ids.Unit, id(kindUnit, 61)), Who: Operator},
		{Name: "admin-engine-log", Path: path("/admin/fleet/units/", ids.Unit, id(kindUnit, 61)) + path("/log/", ids.Unit, id(kindUnit, 801)), Who: Operator},
		{Name: "admin-engine-log-empty", Path: path("/admin/fleet/units/", ids.Unit, id(kindUnit, 61)) + path("/log/", ids.Unit, id(kindUnit, 800)), Who: Operator},
		{Name: "admin-engine-log-not", Path: path("/admin/fleet/units/", ids.Unit, id(kindUnit, 61)) + path("/log/", ids.Unit, id(kindUnit, 1)), Who: Operator, Status: 404},
		{Name: "admin-service", Path: yardHost(36) + "/service", Who: Operator},
		{Name: "admin-service-drained", Path: yardHost(40) + "/service", Who: Operator},
		{Name: "admin-service-nothing", Path: yardHost(36) + "/service", Who: Operator, Form: "reason=x", Status: 422},
		{Name: "admin-facts", Path: yardHost(0) + "/facts", Who: Operator},
		{Name: "admin-facts-bad", Path: yardHost(0) + "/facts", Who: Operator, Form: "provider=&region=x&price=cheap", Status: 422},
		{Name: "admin-maintenance", Path: yardHost(41) + "/maintenance", Who: Operator},
		{Name: "admin-maintenance-bad", Path: yardHost(41) + "/maintenance", Who: Operator, Form: "starts_at=2026-12-02T10:00&ends_at=soon", Status: 422},
		{Name: "admin-demand", Path: "/admin/fleet/demands", Who: Operator},
		{Name: "admin-demand-bad", Path: "/admin/fleet/demands", Who: Operator, Form: "units=many&model=x", Status: 422},
		{Name: "admin-demand-remove", Path: "/admin/fleet/demands/remove?model=" + ids.Format(ids.Model, id(kindModel, 0)) + "&recipe=" + ids.Format(ids.Recipe, starterID("llama-70b-fp8-h100-1p1d")), Who: Operator},
		{Name: "admin-plans", Path: "/admin/fleet/plans", Who: Operator},
		{Name: "admin-plan", Path: path("/admin/fleet/plans/", ids.Plan, id(kindPlan, 42)), Who: Operator},
		{Name: "admin-plan-old", Path: path("/admin/fleet/plans/", ids.Plan, id(kindPlan, 40)), Who: Operator},
		{Name: "admin-recipes", Path: "/admin/fleet/recipes", Who: Operator},
		{Name: "admin-recipe", Path: path("/admin/fleet/recipes/", ids.Recipe, starterID("llama-70b-fp8-h100-1p1d")), Who: Operator},
		{Name: "admin-recipe-form", Path: "/admin/fleet/recipes/new", Who: Operator},
		{Name: "admin-recipe-bad", Path: "/admin/fleet/recipes", Who: Operator, Form: "text=name: x", Status: 422},
		{Name: "admin-fleet-empty", Path: "/admin/fleet", Who: Operator, State: Fresh},
		{Name: "admin-plans-empty", Path: "/admin/fleet/plans", Who: Operator, State: Fresh},
		{Name: "admin-reconcile", Path: "/admin/reconcile", Who: Operator},
		{Name: "admin-exceptions", Path: "/admin/exceptions", Who: Operator},
		{Name: "admin-quarantined", Path: aside(0), Who: Operator},
		{Name: "admin-quarantined-figures", Path: aside(1), Who: Operator},
		{Name: "admin-quarantined-garbage", Path: aside(2), Who: Operator},
		{Name: "admin-quarantined-decided", Path: aside(3), Who: Operator},
		{Name: "admin-quarantine-book", Path: aside(1) + "/book", Who: Operator},
		{Name: "admin-quarantine-book-bad", Path: aside(0) + "/book", Who: Operator, Form: "x=1", Status: 422},
		{Name: "admin-quarantine-dismiss", Path: aside(0) + "/dismiss", Who: Operator},
		{Name: "admin-quarantine-dismiss-bad", Path: aside(0) + "/dismiss", Who: Operator, Form: "reason=+", Status: 422},
		{Name: "admin-payments", Path: "/admin/payments", Who: Operator},
		{Name: "admin-payment-event", Path: "/admin/payments/evt_1PZ8f2", Who: Operator},
		{Name: "admin-payment-dismiss", Path: "/admin/payments/evt_1PZ8f2/dismiss", Who: Operator},
		{Name: "admin-payment-dismiss-bad", Path: "/admin/payments/evt_1PZ8f2/dismiss", Who: Operator, Form: "reason=+", Status: 422},
		{Name: "admin-audit", Path: "/admin/audit", Who: Operator},
		{Name: "admin-outbox", Path: "/admin/outbox", Who: Operator},
	}
}
