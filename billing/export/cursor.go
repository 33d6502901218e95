package export

import (
	"encoding/hex"
	"strings"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Cursor is where a row stands: the partition's day, the organization, the request (of usage; the other data sets go on
// with the next organization). The zero Cursor is before the first row.
type Cursor struct {
	Day time.Time // UTC midnight
	Org ids.ID
	ID  ids.ID
}

// IsZero reports whether c is before the first row.
func (c Cursor) IsZero() bool { return c.Day.IsZero() }

const cursorDay = "20060102"

// String writes the cursor for a manifest or a link; "" for the zero one.
func (c Cursor) String() string {
	if c.IsZero() {
		return ""
	}
	return c.Day.Format(cursorDay) + "." + hex.EncodeToString(c.Org[:]) + "." + hex.EncodeToString(c.ID[:])
}

// ParseCursor reads what String wrote.
func ParseCursor(s string) (c Cursor, err error) {
	if s == "" {
		return c, nil
	}
	parts := strings.Split(s, ".")
	if len(parts) == 3 {
		at, err1 := time.Parse(cursorDay, parts[0])
		org, err2 := hex.DecodeString(parts[1])
		id, err3 := hex.DecodeString(parts[2])
		if err1 == nil && err2 == nil && err3 == nil && len(org) == len(c.Org) && len(id) == len(c.ID) {
			return Cursor{Day: at, Org: ids.ID(org), ID: ids.ID(id)}, nil
		}
	}
	return c, fault.New(fault.Invalid, "This is no cursor of an export: give the manifest's next as it is.").WithParam("after")
}

// MarshalText and UnmarshalText make the cursor a string in a manifest.
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Cursor) UnmarshalText(b []byte) (err error) {
	*c, err = ParseCursor(string(b))
	return err
}
