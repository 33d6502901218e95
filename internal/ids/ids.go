// Package ids makes and reads identifiers. In the database every id is a UUIDv7, so rows sort by creation and the day of
// a usage event derives from its id. Outside, an id carries a prefix that says what it names: org_…, key_…, req_….
package ids

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ID is a UUIDv7.
type ID = uuid.UUID

// Nil is the absent id.
var Nil = uuid.Nil

// Prefixes of public ids.
const (
	Org     = "org"
	Project = "proj"
	Key     = "key"
	User    = "user"
	Model   = "model"
	Price   = "price"
	Host    = "host"
	Unit    = "unit"
	Recipe  = "recipe"
	Request = "req"
	Budget  = "bud"
	Epoch   = "ep"
	Txn     = "txn"
	Grant   = "grant"
	Aside   = "quar" // an event in quarantine
	Topup   = "top"
	Pact    = "pact" // a contract about prices
	Invoice = "inv"
	Note    = "cn" // a credit note
	Plan    = "plan"
	Window  = "win" // of maintenance
)

// New makes a fresh id. It panics only when the system has no randomness.
func New() ID { return uuid.Must(uuid.NewV7()) }

// At makes a fresh id of a given moment: what it names happened then.
func At(t time.Time) ID {
	id := New()
	ms := t.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// Floor is the least id of a moment: ids of before are less, later ones greater.
func Floor(t time.Time) ID {
	id := At(t)
	clear(id[6:])
	return id
}

// Format writes an id with its prefix, for example org_01890a5d….
func Format(prefix string, id ID) string { return prefix + "_" + hex.EncodeToString(id[:]) }

// Parse reads an id written by Format with the same prefix. The bare UUID form is accepted too.
func Parse(prefix, s string) (ID, error) {
	id, err := uuid.Parse(strings.TrimPrefix(s, prefix+"_"))
	if err != nil || id == uuid.Nil {
		return uuid.Nil, fmt.Errorf("%q is not a %s id", s, prefix)
	}
	return id, nil
}

// Time is the moment inside a UUIDv7, in UTC at millisecond resolution.
func Time(id ID) time.Time {
	ms := int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
	return time.UnixMilli(ms).UTC()
}

// Day is the UTC day inside a UUIDv7: the partition a usage event belongs to, whenever it is written.
func Day(id ID) time.Time { return Time(id).Truncate(24 * time.Hour) }
