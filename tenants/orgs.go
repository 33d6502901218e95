package tenants

import (
	"context"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Failure policies: what a customer pays when the engine fails after the first token.
const (
	PayDelivered = "delivered"
	PayNothing   = "nothing"
)

// StandardBook is the price book of customers without a contract of their own.
const StandardBook = "standard"

const (
	maxOrgName     = 200
	maxProjectName = 100
	defaultProject = "Default"
)

// Org is a customer.
type Org struct {
	ID            ids.ID     `json:"id"`
	Name          string     `json:"name"`
	TimeZone      string     `json:"time_zone"` // IANA name
	FailurePolicy string     `json:"failure_policy"`
	PriceBook     string     `json:"price_book"`
	CreditLimit   money.Nano `json:"credit_limit_nano"`
	CreatedAt     time.Time  `json:"created_at"`
	SuspendedAt   *time.Time `json:"suspended_at,omitempty"`
}

func orgOf(r q.Org) Org {
	return Org{ID: r.OrgID, Name: r.Name, TimeZone: r.TimeZone, FailurePolicy: r.FailurePolicy, PriceBook: r.PriceBook,
		CreditLimit: money.Nano(r.CreditLimitNano), CreatedAt: r.CreatedAt, SuspendedAt: r.SuspendedAt}
}

// NewOrg describes an organization to make. Empty fields take their defaults: UTC, PayDelivered, StandardBook, no owner.
type NewOrg struct {
	Name          string
	TimeZone      string
	FailurePolicy string
	PriceBook     string
	Owner         string // e-mail address of the first owner
	// IdempotencyKey makes a repeated request give the organization that the first one made; "" = always a new one.
	IdempotencyKey string
}

func (in *NewOrg) validate() (err error) {
	if in.Name, err = Name("name", in.Name, maxOrgName); err != nil {
		return err
	}
	if in.TimeZone == "" {
		in.TimeZone = "UTC"
	}
	if in.FailurePolicy == "" {
		in.FailurePolicy = PayDelivered
	}
	if in.PriceBook == "" {
		in.PriceBook = StandardBook
	}
	if in.Owner != "" {
		if in.Owner, err = Email("owner_email", in.Owner); err != nil {
			return err
		}
	}
	return validateTerms(in.TimeZone, in.FailurePolicy, in.PriceBook)
}

var bookName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// noZone are names that LoadLocation takes too: the server's own zone and files that lie beside the zones of IANA.
var noZone = regexp.MustCompile(`^(Local|localtime|posixrules|Factory|(posix|right)/.*)$`)

func validateTerms(zone, policy, book string) error {
	if _, err := time.LoadLocation(zone); err != nil || zone == "" || noZone.MatchString(zone) {
		return fault.New(fault.Invalid, "%q is no IANA time zone, for example Europe/Berlin.", zone).WithParam("time_zone")
	}
	if policy != PayDelivered && policy != PayNothing {
		return fault.New(fault.Invalid, "The failure policy is delivered or nothing.").WithParam("failure_policy")
	}
	if !bookName.MatchString(book) {
		return fault.New(fault.Invalid, "A price book's name has up to 64 small letters, digits, dots, dashes and underscores.").WithParam("price_book")
	}
	return nil
}

// CreateOrg makes an organization with a first project and, when named, its owner. Operators only.
func (s *Service) CreateOrg(ctx context.Context, by Actor, in NewOrg) (org Org, err error) {
	if err := by.RequireOperator(); err != nil {
		return Org{}, err
	}
	key := in.IdempotencyKey
	if err := in.validate(); err != nil {
		return Org{}, err
	}
	err = s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		id := ids.New()
		made, err := s.claim(ctx, rows, by, "org.create", key, in, id)
		if err != nil {
			return err
		}
		if made != id {
			row, err := rows.GetOrg(ctx, made)
			org = orgOf(row)
			return err
		}
		if err := priced(ctx, rows, in.PriceBook); err != nil {
			return err
		}
		row, err := rows.InsertOrg(ctx, q.InsertOrgParams{OrgID: id, Name: in.Name, TimeZone: in.TimeZone,
			FailurePolicy: in.FailurePolicy, PriceBook: in.PriceBook, CreatedAt: s.now()})
		if err != nil {
			return err
		}
		org = orgOf(row)
		if err := s.audit(ctx, tx, by, id, "org.create", ids.Format(ids.Org, id), nil, org); err != nil {
			return err
		}
		if _, err := s.insertProject(ctx, tx, rows, by, id, defaultProject); err != nil {
			return err
		}
		if in.Owner == "" {
			return nil
		}
		_, err = s.insertMember(ctx, tx, rows, by, org, in.Owner, Owner)
		return err
	})
	return org, err
}

// Org gives one organization.
func (s *Service) Org(ctx context.Context, by Actor, id ids.ID) (org Org, err error) {
	if err := by.Require(OrgRead, id); err != nil {
		return Org{}, err
	}
	err = s.inOrg(ctx, id, func(_ pgx.Tx, rows *q.Queries) error {
		row, err := rows.GetOrg(ctx, id)
		org = orgOf(row)
		return Found(err, "organization")
	})
	return org, err
}

// Orgs lists organizations whose name contains search, newest first, older than before. Operators only.
func (s *Service) Orgs(ctx context.Context, by Actor, search string, before ids.ID, limit int) (orgs []Org, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		found, err := rows.ListOrgs(ctx, q.ListOrgsParams{Search: search, Before: before, MaxRows: Page(limit)})
		orgs = each(found, orgOf)
		return err
	})
	return orgs, err
}
