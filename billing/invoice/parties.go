package invoice

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Seller is who sends invoices: the business that runs Millrace.
type Seller struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // lines
	TaxID   string `json:"tax_id,omitempty"`
	Email   string `json:"email,omitempty"`
	Terms   string `json:"terms,omitempty"` // how to pay: bank account, reference
}

// Details are to whom an organization's invoices are addressed.
type Details struct {
	LegalName     string `json:"legal_name,omitempty"` // "" = the organization's name
	Address       string `json:"address,omitempty"`    // lines
	Country       string `json:"country,omitempty"`    // ISO 3166, two letters
	TaxID         string `json:"tax_id,omitempty"`
	Email         string `json:"email,omitempty"`
	PurchaseOrder string `json:"purchase_order,omitempty"`
}

// Limits of details. Lengths of whole fields are in bytes.
const (
	maxName    = 200
	maxAddress = 500
	maxTaxID   = 50
	maxEmail   = 254
	maxOrder   = 100

	maxAddressLines = 8
	maxAddressLine  = 100 // characters
)

func (d *Details) check() error {
	for _, f := range []struct {
		param, name string
		text        *string
		most        int
	}{{"legal_name", "legal name", &d.LegalName, maxName}, {"address", "address", &d.Address, maxAddress}, {"country", "country", &d.Country, 2},
		{"tax_id", "tax id", &d.TaxID, maxTaxID}, {"email", "e-mail address", &d.Email, maxEmail}, {"purchase_order", "purchase order", &d.PurchaseOrder, maxOrder}} {
		*f.text = strings.TrimSpace(strings.ReplaceAll(*f.text, "\r\n", "\n"))
		if len(*f.text) > f.most {
			return fault.New(fault.Invalid, "The %s has %d bytes, at most %d.", f.name, len(*f.text), f.most).WithParam(f.param)
		}
		if lines := f.param == "address"; !utf8.ValidString(*f.text) || strings.ContainsFunc(*f.text, func(r rune) bool { return unprintable(r) && (r != '\n' || !lines) }) {
			return fault.New(fault.Invalid, "The %s has a control or format character, which no document can show.", f.name).WithParam(f.param)
		}
	}
	lines := strings.Split(d.Address, "\n")
	if len(lines) > maxAddressLines {
		return fault.New(fault.Invalid, "The address has %d lines, at most %d.", len(lines), maxAddressLines).WithParam("address")
	}
	for i, l := range lines {
		if n := utf8.RuneCountInString(l); n > maxAddressLine {
			return fault.New(fault.Invalid, "Line %d of the address has %d characters, at most %d.", i+1, n, maxAddressLine).WithParam("address")
		}
	}
	d.Country = strings.ToUpper(d.Country)
	if d.Country != "" && (len(d.Country) != 2 || strings.Trim(d.Country, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		return fault.New(fault.Invalid, "Name a country by its two letters, for example DE.").WithParam("country")
	}
	if d.Email != "" {
		if a, err := mail.ParseAddress(d.Email); err != nil || a.Address != d.Email {
			return fault.New(fault.Invalid, "Give one e-mail address.").WithParam("email")
		}
	}
	return nil
}

// unprintable reports what has no place in a name: it breaks lines, or turns text around.
func unprintable(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// Details tells to whom an organization's invoices are addressed.
func (s *Service) Details(ctx context.Context, by tenants.Actor, org ids.ID) (d Details, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return Details{}, err
	}
	err = s.c.DB.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		d, err = details(ctx, q.New(tx), org)
		return err
	})
	return d, err
}

func details(ctx context.Context, r *q.Queries, org ids.ID) (Details, error) {
	row, err := r.BillingDetails(ctx, org)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Details{}, fmt.Errorf("invoice: billing details: %w", err)
	}
	return Details{LegalName: row.LegalName, Address: row.Address, Country: row.Country, TaxID: row.TaxID, Email: row.Email, PurchaseOrder: row.PurchaseOrder}, nil
}

// SetDetails changes it for the invoices to come. Who manages the organization's money, and operators.
func (s *Service) SetDetails(ctx context.Context, by tenants.Actor, org ids.ID, d Details) error {
	if err := by.Require(tenants.BillingManage, org); err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return err
	}
	return wrapped("set billing details", s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		if names, err := r.OrgNames(ctx, []ids.ID{org}); err != nil {
			return err
		} else if len(names) == 0 {
			return fault.New(fault.NotFound, "There is no such organization.").WithCode("not_found")
		}
		was, err := details(ctx, r, org)
		if err != nil || was == d {
			return err
		}
		if err := r.SetBillingDetails(ctx, q.SetBillingDetailsParams{OrgID: org, LegalName: d.LegalName, Address: d.Address, Country: d.Country, TaxID: d.TaxID,
			Email: d.Email, PurchaseOrder: d.PurchaseOrder, UpdatedBy: by.Name(), UpdatedAt: s.now()}); err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: "billing_details.set", Target: ids.Format(ids.Org, org), Before: was, After: d, At: s.now()})
	}))
}
