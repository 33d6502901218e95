package stripefake

import (
	"fmt"
	"slices"
	"strings"
)

// taxID is a customer's number at a tax office.
type taxID struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Customer string `json:"customer"`
	Type     string `json:"type"`
	Value    string `json:"value"`
	Country  string `json:"country"`
	Created  int64  `json:"created"`
	Livemode bool   `json:"livemode"`
	Verified struct {
		Status string `json:"status"`
	} `json:"verification"`
}

func taxIDID(x *taxID) string { return x.ID }

// taxKind is a kind of number that the fake takes: those of the countries that it names.
type taxKind struct {
	Type, Name string
	example    string
	country    func(value string) string
	least      int // letters and digits
	most       int
}

func always(country string) func(string) string { return func(string) string { return country } }

var taxKinds = []taxKind{
	{Type: "eu_vat", Name: "EU VAT number", example: "DE123456789", country: func(v string) string { return v[:2] }, least: 8, most: 14},
	{Type: "gb_vat", Name: "UK VAT number", example: "GB123456789", country: always("GB"), least: 5, most: 14},
	{Type: "us_ein", Name: "US EIN", example: "12-3456789", country: always("US"), least: 9, most: 9},
	{Type: "ch_vat", Name: "Swiss VAT number", example: "CHE-123.456.789 MWST", country: always("CH"), least: 12, most: 17},
}

const maxTaxIDs = 5 // of a customer

// addTaxID keeps a number, which is then found to be real. The answer is what a person is told; "" = it is kept.
func (s *Server) addTaxID(customer, kind, value string) (problem string) {
	i := slices.IndexFunc(taxKinds, func(k taxKind) bool { return k.Type == kind })
	if i < 0 {
		return "Say which kind of tax id it is."
	}
	k := taxKinds[i]
	value = strings.ToUpper(strings.TrimSpace(value))
	plain := strings.NewReplacer(" ", "", "-", "", ".", "").Replace(value)
	if len(plain) < k.least || len(plain) > k.most || strings.Trim(plain, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
		return fmt.Sprintf("This is not a %s, as %s is.", k.Name, k.example)
	}
	count := 0
	for _, x := range s.mem.TaxIDs {
		switch {
		case x.Customer != customer:
		case x.Type == kind && x.Value == value:
			return "" // it is there
		default:
			count++
		}
	}
	if count >= maxTaxIDs {
		return fmt.Sprintf("There are %d tax ids already. Remove one first.", maxTaxIDs)
	}
	x := &taxID{ID: newID("txi"), Object: "tax_id", Customer: customer, Type: kind, Value: value, Country: k.country(plain), Created: unix(s.now())}
	x.Verified.Status = "pending"
	s.mem.TaxIDs = append(s.mem.TaxIDs, x)
	s.emit("customer.tax_id.created", x)
	x.Verified.Status = "verified"
	s.emit("customer.tax_id.updated", x)
	return ""
}

func (s *Server) removeTaxID(x *taxID) {
	s.mem.TaxIDs = slices.DeleteFunc(s.mem.TaxIDs, func(y *taxID) bool { return x == y })
	s.emit("customer.tax_id.deleted", x)
}
