package stripefake

import (
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

//go:embed page.html
var pageFiles embed.FS

var pageHTML = template.Must(template.ParseFS(pageFiles, "page.html"))

// pageView is what the page shows.
type pageView struct {
	Session  *session
	Amount   string
	Number   string
	Problem  string
	Asks     bool // the bank wants a confirmation
	Over     bool
	Portal   *portalView
	AsksTax  bool // a tax id may be given
	TaxKind  string
	TaxValue string
	Back     string
	Examples []example
}

// Kinds are the tax ids that can be given.
func (pageView) Kinds() []taxKind { return taxKinds }

type example struct{ Number, What string }

var examples = []example{
	{CardGood, "works"}, {CardNoFunds, "has no money"}, {CardAuthAlways, "the bank asks you every time"}, {CardDeclinesKept, "can be kept, and declines later"}, {CardDisputed, "works, and is disputed at once"},
}

// Pages is the handler of the pages that people see, for the paths under PageURL with its path taken off.
func (s *Server) Pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pay/{id}", s.showPage)
	mux.HandleFunc("POST /pay/{id}", s.click)
	mux.HandleFunc("GET /portal/{id}", s.showPortal)
	mux.HandleFunc("POST /portal/{id}", s.clickPortal)
	s.invoicePages(mux)
	cross := http.NewCrossOriginProtection()
	return cross.Handler(mux)
}

func (s *Server) view(id string) (v pageView, status int) {
	s.expire()
	x := find(s.mem.Sessions, sessionID, id)
	if x == nil {
		return pageView{Over: true, Problem: "There is no such page."}, http.StatusNotFound
	}
	shown := *x
	v = pageView{Session: &shown, Amount: fmt.Sprintf("$%d.%02d", x.Amount/100, x.Amount%100), Number: CardGood, Over: x.Status != "open", Back: x.Cancel, AsksTax: x.AsksTax, Examples: examples}
	if v.Over {
		v.Back = destination(x)
	}
	return v, http.StatusOK
}

func destination(x *session) string {
	return strings.ReplaceAll(x.Success, "{CHECKOUT_SESSION_ID}", x.ID)
}

func (s *Server) showPage(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	v, status := s.view(r.PathValue("id"))
	s.mu.Unlock()
	draw(w, status, v)
}

func (s *Server) click(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form cannot be read.", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	v, status := s.view(r.PathValue("id"))
	to := ""
	if !v.Over {
		x := find(s.mem.Sessions, sessionID, r.PathValue("id"))
		out := s.complete(x, Way{Number: r.PostForm.Get("number"), Confirmed: r.PostForm.Get("confirmed") == "yes",
			TaxKind: r.PostForm.Get("tax_kind"), TaxValue: r.PostForm.Get("tax_value")})
		if r.PostForm.Get("confirmed") == "no" {
			out = outcome{problem: "You did not confirm the payment."}
		}
		v.TaxKind, v.TaxValue = r.PostForm.Get("tax_kind"), r.PostForm.Get("tax_value")
		v.Number, v.Problem, v.Asks, status = r.PostForm.Get("number"), out.problem, out.asks, http.StatusUnprocessableEntity
		if out.problem == "" && !out.asks {
			to = destination(x)
		}
		s.save()
	}
	s.mu.Unlock()
	if to != "" {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	draw(w, status, v)
}

func draw(w http.ResponseWriter, status int, v pageView) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	_ = pageHTML.Execute(w, v) // the browser is gone
}
