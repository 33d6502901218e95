package stripefake

import "net/http"

// portal is a person's way to a customer's cards and tax ids, without signing in: the link is the key.
type portal struct{ customer, back string }

// maxPortals bounds the portals that are remembered.
const maxPortals = 1000

func (s *Server) createPortal(c *call) *reply {
	x := find(s.mem.Customers, customerID, c.params.Get("customer"))
	if x == nil {
		return missingParam("customer", c.params.Get("customer"))
	}
	id, back := newID("bps"), c.params.Get("return_url")
	if len(s.portals) >= maxPortals {
		clear(s.portals)
	}
	s.portals[id] = portal{customer: x.ID, back: back}
	return ok(map[string]any{"id": id, "object": "billing_portal.session", "customer": x.ID, "created": unix(s.now()), "livemode": false, "return_url": back,
		"url": s.cfg.PageURL + "/portal/" + id})
}

// portalView is what the portal shows.
type portalView struct {
	Cards  []method
	TaxIDs []taxID
}

// viewPortal is the portal of a link. The caller holds mu.
func (s *Server) viewPortal(id string) (v pageView, status int) {
	p, known := s.portals[id]
	if !known {
		return pageView{Over: true, Problem: "There is no such page."}, http.StatusNotFound
	}
	shown := &portalView{}
	for _, m := range s.mem.Methods {
		if text(m.Customer) == p.customer {
			shown.Cards = append(shown.Cards, *m)
		}
	}
	for _, x := range s.mem.TaxIDs {
		if x.Customer == p.customer {
			shown.TaxIDs = append(shown.TaxIDs, *x)
		}
	}
	return pageView{Portal: shown, Back: p.back}, http.StatusOK
}

func (s *Server) showPortal(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	v, status := s.viewPortal(r.PathValue("id"))
	s.mu.Unlock()
	draw(w, status, v)
}

func (s *Server) clickPortal(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form cannot be read.", http.StatusBadRequest)
		return
	}
	id := r.PathValue("id")
	s.mu.Lock()
	problem := ""
	p, known := s.portals[id]
	if known {
		problem = s.changePortal(p.customer, r)
		s.save()
	}
	v, status := s.viewPortal(id)
	s.mu.Unlock()
	switch {
	case problem != "":
		v.Problem, v.TaxKind, v.TaxValue, status = problem, r.PostForm.Get("tax_kind"), r.PostForm.Get("tax_value"), http.StatusUnprocessableEntity
	case known:
		http.Redirect(w, r, s.cfg.PageURL+"/portal/"+id, http.StatusSeeOther)
		return
	}
	draw(w, status, v)
}

// changePortal does what a person asked for, with what is this customer's; what is gone already is no problem.
func (s *Server) changePortal(customer string, r *http.Request) (problem string) {
	form := r.PostForm
	if m := find(s.mem.Methods, methodID, form.Get("remove_card")); m != nil && text(m.Customer) == customer {
		s.detach(m)
	}
	if x := find(s.mem.TaxIDs, taxIDID, form.Get("remove_tax")); x != nil && x.Customer == customer {
		s.removeTaxID(x)
	}
	if form.Has("tax_value") {
		return s.addTaxID(customer, form.Get("tax_kind"), form.Get("tax_value"))
	}
	return ""
}
