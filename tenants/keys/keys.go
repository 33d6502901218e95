// Package keys owns API keys: making, listing, changing and revoking them (Service), and telling on every request whose
// key it is (Authenticator). It does not own what a key may spend (billing/credit) or how fast (tenants/limits); it only
// carries those numbers to the gateway.
//
// Invariants: a key is shown once and stored as an HMAC; a request with a well-known key costs no query; a revoked key
// is refused within HardTTL whatever happens, and at once where the notice arrives; a notice beats every query that was
// under way when it came.
package keys

import (
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Times of the Authenticator.
const (
	HardTTL         = 10 * time.Second // the oldest answer that is used while the database is there
	RefreshInterval = 4 * time.Second  // how often keys in use are read again, all in one query
	awayInterval    = 1 * time.Second  // the same while the database is away
	absentTTL       = 5 * time.Second  // how long an unknown key is remembered as unknown
	loadTimeout     = 2 * time.Second  // one query; well below HardTTL, so that an outage is noticed before entries age out
	idleAfter       = 60 * time.Second // an entry unused for so long is dropped
	touchGap        = 60 * time.Second // last_used_at is written at most this often for a key
)

// Sizes of the Authenticator.
const (
	maxAbsent  = 8192 // unknown keys remembered
	maxWaiting = 4096 // keys being looked up at once; more is an attack or an outage
	maxBatch   = 256  // keys a query looks up for waiting requests
	maxReloads = 3    // times a lookup is repeated because a notice overtook it
)

// Principal is who a request acts for and the numbers that bound it. Limits of 0 mean none.
type Principal struct {
	Org, Project, Key ids.ID
	PriceBook         string
	TimeZone          string // IANA name: where the organization's periods begin
	FailurePolicy     string // delivered or nothing: what is paid when the engine fails mid-way
	RPM               int64  // requests per minute
	TPM               int64  // tokens per minute
	Concurrency       int64  // requests at once
	Suspended         bool   // true only beside the Forbidden error, for the log

	hash Hash // of its key
}

func missingKey() error {
	return fault.New(fault.Unauthenticated, "No API key was sent. Send it in the header Authorization: Bearer YOUR_KEY.").WithCode("invalid_api_key")
}

func unknownKey() error {
	return fault.New(fault.Unauthenticated, "Incorrect API key. Copy it anew, or make one in the console.").WithCode("invalid_api_key")
}

func revokedKey(at time.Time) error {
	return fault.New(fault.Unauthenticated, "This API key was revoked on %s. Make a new one in the console.", day(at)).WithCode("api_key_revoked")
}

func expiredKey(at time.Time) error {
	return fault.New(fault.Unauthenticated, "This API key expired on %s. Make a new one in the console.", day(at)).WithCode("api_key_expired")
}

func archivedProject() error {
	return fault.New(fault.Unauthenticated, "The project of this API key has been archived.").WithCode("project_archived")
}

func suspendedOrg() error {
	return fault.New(fault.Forbidden, "This organization is suspended. Contact support.").WithCode("organization_suspended")
}

func cannotCheck(cause error) error {
	return fault.New(fault.Unavailable, "The API key cannot be checked just now. Try again.").WithRetryAfter(time.Second).WithCause(cause)
}

func day(t time.Time) string { return t.UTC().Format("2 January 2006 15:04 MST") }
