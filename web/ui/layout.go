package ui

import "strconv"

var themes = []struct{ value, name, icon string }{
	{"auto", "System theme", "sun-moon"},
	{"light", "Light theme", "sun"},
	{"dark", "Dark theme", "moon"},
}

func pressed(c Chrome, value string) string {
	return strconv.FormatBool(value == c.Theme || value == "auto" && c.Theme == "")
}

func homePath(c Chrome) string {
	switch {
	case c.HomePath != "":
		return c.HomePath
	case c.Area == Operator:
		return "/admin"
	}
	return "/"
}

func who(c Chrome) string {
	if c.Area == Operator {
		return "Operator"
	}
	return c.OrgName
}

func current(p Page, i NavItem) string {
	if p.Path == i.Path {
		return "page"
	}
	return "false"
}

// areaSuffix keeps titles unique: both areas have an audit log.
func areaSuffix(c Chrome) string {
	if c.Area == Operator {
		return " operator"
	}
	return ""
}

func paletteFrom(c Chrome) string {
	if c.Area == Operator {
		return "/admin/palette"
	}
	return "/palette"
}

func paletteID(i int) string { return "go-" + strconv.Itoa(i) }

// PalettePages are an area's pages as palette items.
func PalettePages(a Area) []PaletteItem {
	var out []PaletteItem
	for _, g := range Nav(a) {
		for _, i := range g.Items {
			out = append(out, PaletteItem{Href: i.Path, Name: i.Name, Kind: g.Name})
		}
	}
	return out
}
