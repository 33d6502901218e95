package invoice

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
