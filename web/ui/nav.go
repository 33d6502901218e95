package ui

// NavGroup is a heading of the side navigation: one of the person's jobs.
type NavGroup struct {
	Name  string
	Items []NavItem
}

// NavItem is one page of the navigation.
type NavItem struct{ Path, Name, Icon string }

// Nav is the navigation of an area.
func Nav(a Area) []NavGroup {
	switch a {
	case Customer:
		return customerNav
	case Operator:
		return operatorNav
	}
	return nil
}

var customerNav = []NavGroup{
	{"Build", []NavItem{
		{"/", "Home", "house"},
		{"/playground", "Playground", "message-square-text"},
		{"/keys", "API keys", "key-round"},
		{"/models", "Models", "boxes"},
	}},
	{"Observe", []NavItem{
		{"/usage", "Usage", "chart-column"},
		{"/requests", "Requests", "list"},
	}},
	{"Organization", []NavItem{
		{"/billing", "Billing", "receipt"},
		{"/limits", "Limits and caps", "gauge"},
		{"/members", "Members", "users"},
		{"/audit", "Audit log", "scroll-text"},
	}},
}

var operatorNav = []NavGroup{
	{"Business", []NavItem{
		{"/admin", "Overview", "layout-dashboard"},
		{"/admin/customers", "Customers", "building-2"},
		{"/admin/models", "Models and prices", "tags"},
		{"/admin/revenue", "Revenue", "trending-up"},
		{"/admin/invoices", "Invoices", "receipt"},
		{"/admin/months", "Months", "scale"},
		{"/admin/margin", "Margin", "gauge"},
		{"/admin/approvals", "Approvals", "check"},
	}},
	{"Fleet", []NavItem{
		{"/admin/fleet", "Fleet", "boxes"},
		{"/admin/hosts", "Hosts", "server"},
		{"/admin/units", "Units", "cpu"},
	}},
	{"Operate", []NavItem{
		{"/admin/reconcile", "Reconcile", "scale"},
		{"/admin/exceptions", "Exceptions", "shield-alert"},
		{"/admin/payments", "Payments", "receipt"},
		{"/admin/audit", "Audit log", "scroll-text"},
		{"/admin/outbox", "Outbox", "mail"},
	}},
}
