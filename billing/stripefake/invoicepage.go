package stripefake

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
)

// invoicePages are the pages of invoices: one to pay on, and its PDF.
func (s *Server) invoicePages(mux *http.ServeMux) {
	mux.HandleFunc("GET /invoice/{id}", s.showInvoicePage)
	mux.HandleFunc("POST /invoice/{id}", s.clickInvoicePage)
	mux.HandleFunc("GET /invoice/{id}/pdf", s.showInvoicePDF)
}

// invoiceView is what the page of an invoice shows: the page of a payment, without a way back.
func (s *Server) invoiceView(id string) (v pageView, x *invoice, status int) {
	x = find(s.mem.Invoices, invoiceID, id)
	if x == nil || x.Page == nil {
		return pageView{Over: true, Problem: "There is no such page."}, nil, http.StatusNotFound
	}
	v = pageView{Session: &session{Mode: "payment", Name: "Invoice " + text(x.Number)}, Amount: dollars(x.Remaining), Number: CardGood, Examples: examples}
	if x.Status != "open" && x.Status != "uncollectible" {
		v.Over, v.Problem = true, "Invoice "+text(x.Number)+" is "+x.Status+"."
	}
	return v, x, http.StatusOK
}

func dollars(cents int64) string { return fmt.Sprintf("$%d.%02d", cents/100, cents%100) }

func (s *Server) showInvoicePage(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	v, _, status := s.invoiceView(r.PathValue("id"))
	s.mu.Unlock()
	draw(w, status, v)
}

func (s *Server) clickInvoicePage(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form cannot be read.", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	v, x, status := s.invoiceView(r.PathValue("id"))
	through := false
	if x != nil && !v.Over {
		out := outcome{problem: "You did not confirm the payment."}
		if answer := r.PostForm.Get("confirmed"); answer != "no" {
			out = s.clickInvoice(x, Way{Number: r.PostForm.Get("number"), Confirmed: answer == "yes"})
		}
		v.Number, v.Problem, v.Asks, status = r.PostForm.Get("number"), out.problem, out.asks, http.StatusUnprocessableEntity
		through = out == outcome{}
		s.save()
	}
	s.mu.Unlock()
	if through {
		http.Redirect(w, r, s.cfg.PageURL+"/invoice/"+x.ID, http.StatusSeeOther)
		return
	}
	draw(w, status, v)
}

func (s *Server) showInvoicePDF(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	x := find(s.mem.Invoices, invoiceID, r.PathValue("id"))
	var lines []string
	if x != nil && x.Page != nil {
		lines = append(lines, "Test invoice "+text(x.Number)+" - no money moves", "")
		for _, l := range x.Lines[:min(len(x.Lines), pdfLines)] {
			lines = append(lines, l.Description+"   "+dollars(l.Amount))
		}
		lines = append(lines, "", "Total "+dollars(x.Total)+", "+x.Status)
	}
	s.mu.Unlock()
	if lines == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/pdf")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(plainPDF(lines)) // the browser is gone
}

const pdfLines = 50 // as many as the page holds

// plainPDF is one page of text: as little of the format as readers take.
func plainPDF(lines []string) []byte {
	var body bytes.Buffer
	body.WriteString("BT /F1 10 Tf 50 790 Td 14 TL\n")
	for _, l := range lines {
		ascii := strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '?'
			}
			return r
		}, l)
		fmt.Fprintf(&body, "(%s) Tj T*\n", strings.NewReplacer(`\`, `\\`, "(", `\(`, ")", `\)`).Replace(ascii))
	}
	body.WriteString("ET")
	objects := []string{
		"<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
		fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", body.Len(), body.String()),
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
	}
	var out bytes.Buffer
	out.WriteString("%PDF-1.4\n")
	at := make([]int, len(objects))
	for i, o := range objects {
		at[i] = out.Len()
		fmt.Fprintf(&out, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	table := out.Len()
	fmt.Fprintf(&out, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, offset := range at {
		fmt.Fprintf(&out, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&out, "trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, table)
	return out.Bytes()
}
