package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"millrace/billing/invoice"
)

// sellerFlags are who sends invoices, and by when they are to be paid.
type sellerFlags struct {
	SellerName      string        `help:"Legal name on invoices: the business that runs Millrace." env:"MILLRACE_SELLER_NAME"`
	SellerAddress   string        `help:"Its address; \\n begins a new line." env:"MILLRACE_SELLER_ADDRESS"`
	SellerTaxID     string        `name:"seller-tax-id" help:"Its tax id." env:"MILLRACE_SELLER_TAX_ID"`
	SellerEmail     string        `help:"Where customers ask about invoices." env:"MILLRACE_SELLER_EMAIL"`
	SellerTermsFile string        `help:"File with how to pay: bank account, reference. It is printed on invoices." type:"path" env:"MILLRACE_SELLER_TERMS_FILE"`
	InvoiceDue      time.Duration `help:"When an invoice is due, from the day it becomes final." default:"336h" env:"MILLRACE_INVOICE_DUE"`
}

// Limits of what is printed on every invoice, in bytes.
const (
	maxSellerText = 500
	maxTerms      = 2000
)

func (f sellerFlags) seller() (invoice.Seller, error) {
	s := invoice.Seller{Name: strings.TrimSpace(f.SellerName), Address: strings.TrimSpace(strings.ReplaceAll(f.SellerAddress, `\n`, "\n")), TaxID: strings.TrimSpace(f.SellerTaxID),
		Email: strings.TrimSpace(f.SellerEmail)}
	for name, text := range map[string]string{"name": s.Name, "address": s.Address, "tax-id": s.TaxID, "email": s.Email} {
		if len(text) > maxSellerText {
			return s, fmt.Errorf("--seller-%s: at most %d bytes", name, maxSellerText)
		}
	}
	if f.InvoiceDue <= 0 {
		return s, fmt.Errorf("--invoice-due: %s is no time from now", f.InvoiceDue)
	}
	if f.SellerTermsFile == "" {
		return s, nil
	}
	terms, err := os.ReadFile(f.SellerTermsFile)
	if err != nil {
		return s, fmt.Errorf("the terms on invoices: %w", err)
	}
	if len(terms) > maxTerms {
		return s, fmt.Errorf("the terms on invoices: at most %d bytes", maxTerms)
	}
	s.Terms = strings.TrimSpace(string(terms))
	return s, nil
}
