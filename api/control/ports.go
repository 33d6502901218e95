package control

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"millrace/billing/alert"
	"millrace/billing/credit"
	"millrace/billing/export"
	"millrace/billing/hook"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/month"
	"millrace/billing/price"
	"millrace/billing/report"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/fleet"
	"millrace/serving/recipe/store"
	"millrace/tenants"
	"millrace/tenants/audit"
	"millrace/tenants/keys"
)

// Tenants is organizations and people: *tenants.Service.
type Tenants interface {
	AuthenticateControl(ctx context.Context, bearer string) (tenants.Actor, error)
	CreateOrg(ctx context.Context, by tenants.Actor, in tenants.NewOrg) (tenants.Org, error)
	Org(ctx context.Context, by tenants.Actor, id ids.ID) (tenants.Org, error)
	Orgs(ctx context.Context, by tenants.Actor, search string, before ids.ID, limit int) ([]tenants.Org, error)
	UpdateOrg(ctx context.Context, by tenants.Actor, id ids.ID, c tenants.OrgChange) (tenants.Org, error)
	SuspendOrg(ctx context.Context, by tenants.Actor, id ids.ID) (tenants.Org, error)
	RestoreOrg(ctx context.Context, by tenants.Actor, id ids.ID) (tenants.Org, error)
	CreateProject(ctx context.Context, by tenants.Actor, org ids.ID, name string) (tenants.Project, error)
	Projects(ctx context.Context, by tenants.Actor, org ids.ID) ([]tenants.Project, error)
	RenameProject(ctx context.Context, by tenants.Actor, org, id ids.ID, name string) (tenants.Project, error)
	ArchiveProject(ctx context.Context, by tenants.Actor, org, id ids.ID) (tenants.Project, error)
	AddMember(ctx context.Context, by tenants.Actor, org ids.ID, email string, role tenants.Role) (tenants.Member, error)
	Members(ctx context.Context, by tenants.Actor, org ids.ID) ([]tenants.Member, error)
	SetRole(ctx context.Context, by tenants.Actor, org, user ids.ID, role tenants.Role) error
	RemoveMember(ctx context.Context, by tenants.Actor, org, user ids.ID) error
	CreateLink(ctx context.Context, by tenants.Actor, email string, ttl time.Duration) (tenants.Link, error)
	CreateControlToken(ctx context.Context, by tenants.Actor, name string) (bearer string, err error)
	ControlTokens(ctx context.Context, by tenants.Actor) ([]tenants.ControlToken, error)
	RevokeControlToken(ctx context.Context, by tenants.Actor, name string) error
	Audit(ctx context.Context, by tenants.Actor, org, before ids.ID, limit int) ([]audit.Entry, error)
}

// Keys is API keys: *keys.Service.
type Keys interface {
	Create(ctx context.Context, by tenants.Actor, in keys.NewKey) (keys.Key, string, error)
	Keys(ctx context.Context, by tenants.Actor, org, project, before ids.ID, limit int) ([]keys.Key, error)
	Key(ctx context.Context, by tenants.Actor, org, id ids.ID) (keys.Key, error)
	Update(ctx context.Context, by tenants.Actor, org, id ids.ID, c keys.Change) (keys.Key, error)
	Revoke(ctx context.Context, by tenants.Actor, org, id ids.ID) (keys.Key, error)
}

// Exports is files of usage and revenue: *export.Service.
type Exports interface {
	Check(by tenants.Actor, in export.Query) error
	Write(ctx context.Context, by tenants.Actor, in export.Query, f export.Format, w io.Writer) (export.Manifest, error)
}

// Credit is what customers may spend: *credit.Desk.
type Credit interface {
	Balance(ctx context.Context, by tenants.Actor, org ids.ID) (credit.Balance, error)
	SetCreditLimit(ctx context.Context, by tenants.Actor, org ids.ID, limit money.Nano) error
	Grant(ctx context.Context, by tenants.Actor, in credit.GrantInput) (g credit.Grant, fresh bool, err error)
	Grants(ctx context.Context, by tenants.Actor, org ids.ID, limit int) ([]credit.Grant, error)
	SetCap(ctx context.Context, by tenants.Actor, org ids.ID, c credit.Cap) (credit.Cap, error)
	Caps(ctx context.Context, by tenants.Actor, org ids.ID) ([]credit.CapUsage, error)
	RemoveCap(ctx context.Context, by tenants.Actor, org, id ids.ID) error
	RaiseCap(ctx context.Context, by tenants.Actor, org, id ids.ID, to money.Nano, until time.Time) (credit.Cap, error)
	Ask(ctx context.Context, by tenants.Actor, a credit.Ask) (credit.Request, error)
	Requests(ctx context.Context, by tenants.Actor) ([]credit.Request, error)
	Refuse(ctx context.Context, by tenants.Actor, id ids.ID, note string) (credit.Request, error)
}

// Invoices bills organizations: *invoice.Service.
type Invoices interface {
	List(ctx context.Context, by tenants.Actor, org ids.ID, limit int, before ids.ID) ([]invoice.Invoice, error)
	All(ctx context.Context, by tenants.Actor, f invoice.Filter) ([]invoice.Invoice, error)
	Get(ctx context.Context, by tenants.Actor, org, id ids.ID) (invoice.Invoice, error)
	SoFar(ctx context.Context, by tenants.Actor, org ids.ID) (invoice.Invoice, error)
	PDF(ctx context.Context, by tenants.Actor, org, id ids.ID, w io.Writer) error
	NotePDF(ctx context.Context, by tenants.Actor, org, id, note ids.ID, w io.Writer) error
	Draft(ctx context.Context, by tenants.Actor, month time.Time) (int, error)
	Finalize(ctx context.Context, by tenants.Actor, org, id ids.ID) (invoice.Invoice, error)
	RecordPayment(ctx context.Context, by tenants.Actor, org, id ids.ID, in invoice.PaymentInput) (invoice.Invoice, error)
	ReversePayment(ctx context.Context, by tenants.Actor, org, id, payment ids.ID, reason string) (invoice.Invoice, error)
	CreditNote(ctx context.Context, by tenants.Actor, org, id ids.ID, in invoice.NoteInput) (invoice.Outcome, error)
	SendNoteByHand(ctx context.Context, by tenants.Actor, org, id, note ids.ID, reason, key string) (invoice.Outcome, error)
	WriteOff(ctx context.Context, by tenants.Actor, org, id ids.ID, reason, key string) (invoice.Outcome, error)
}

// Months is accounting months: *month.Service.
type Months interface {
	List(ctx context.Context, by tenants.Actor) ([]month.Line, error)
	Report(ctx context.Context, by tenants.Actor, start time.Time) (month.Report, error)
	CheckClose(ctx context.Context, by tenants.Actor, start time.Time) ([]month.Reason, error)
	Close(ctx context.Context, by tenants.Actor, start time.Time, typed string) (month.Report, error)
}

// Hooks is customers' webhooks: *hook.Service.
type Hooks interface {
	Hooks(ctx context.Context, by tenants.Actor, org ids.ID) ([]hook.Hook, error)
	Add(ctx context.Context, by tenants.Actor, org ids.ID, address string) (h hook.Hook, secret string, err error)
	Test(ctx context.Context, by tenants.Actor, org, id ids.ID) error
	Remove(ctx context.Context, by tenants.Actor, org, id ids.ID) error
	Deliveries(ctx context.Context, by tenants.Actor, org ids.ID) ([]hook.Delivery, error)
}

// Alerts is thresholds of caps that were passed, and of balances: *alert.Teller.
type Alerts interface {
	Alerts(ctx context.Context, by tenants.Actor, org ids.ID) ([]alert.Alert, error)
	Low(ctx context.Context, by tenants.Actor, org ids.ID) (alert.Low, error)
	SetLow(ctx context.Context, by tenants.Actor, org ids.ID, below money.Nano) error
}

// Prices is price versions and contracts: *price.Service.
type Prices interface {
	Create(ctx context.Context, by tenants.Actor, d price.Draft) (price.Version, error)
	Timeline(ctx context.Context, by tenants.Actor, model ids.ID) ([]price.Version, error)
	Cancel(ctx context.Context, by tenants.Actor, id ids.ID) (price.Version, error)
	Preview(ctx context.Context, by tenants.Actor, d price.Draft) (price.Preview, error)
	AddContract(ctx context.Context, by tenants.Actor, n price.NewContract) (price.Contract, error)
	EndContract(ctx context.Context, by tenants.Actor, org, id ids.ID, at time.Time) (price.Contract, error)
	Contracts(ctx context.Context, by tenants.Actor, org ids.ID) ([]price.Contract, error)
}

// Placement is demands, plans, and hosts in and out of service: *fleet.Service.
type Placement interface {
	Overview(ctx context.Context, by tenants.Actor) (fleet.Overview, error)
	Unit(ctx context.Context, by tenants.Actor, id ids.ID) (fleet.UnitView, []fleet.Event, error)
	SetSettings(ctx context.Context, by tenants.Actor, in fleet.Settings) error
	Demands(ctx context.Context, by tenants.Actor) ([]fleet.Demand, error)
	SetDemand(ctx context.Context, by tenants.Actor, in fleet.DemandInput) (version int64, err error)
	RemoveDemand(ctx context.Context, by tenants.Actor, model, recipe ids.ID) error
	Draft(ctx context.Context, by tenants.Actor, note string) (ids.ID, error)
	Commit(ctx context.Context, by tenants.Actor, id ids.ID) error
	Plans(ctx context.Context, by tenants.Actor, before int64, limit int) ([]fleet.PlanInfo, error)
	Plan(ctx context.Context, by tenants.Actor, id ids.ID) (fleet.PlanView, error)
	Consequence(ctx context.Context, by tenants.Actor, host ids.ID) (fleet.Consequence, error)
	Cordon(ctx context.Context, by tenants.Actor, host ids.ID, reason string) error
	Drain(ctx context.Context, by tenants.Actor, host ids.ID, reason string) error
	Uncordon(ctx context.Context, by tenants.Actor, host ids.ID) error
	SetFacts(ctx context.Context, by tenants.Actor, host ids.ID, f fleet.Facts) error
	AddWindow(ctx context.Context, by tenants.Actor, w fleet.Window) (ids.ID, error)
	CancelWindow(ctx context.Context, by tenants.Actor, host, id ids.ID) error
	Windows(ctx context.Context, by tenants.Actor) ([]fleet.Window, error)
}

// Catalogue is models and units: *catalogue.Catalogue.
type Catalogue interface {
	Models() []*catalogue.Model
	CreateModel(ctx context.Context, in catalogue.ModelInput, by tenants.Actor) (*catalogue.Model, error)
	SetExtras(ctx context.Context, model ids.ID, list []string, by tenants.Actor) ([]string, error)
	List(ctx context.Context, by tenants.Actor) ([]catalogue.UnitInfo, error)
	Attach(ctx context.Context, in catalogue.AttachInput, by tenants.Actor) (ids.ID, error)
	Detach(ctx context.Context, unit ids.ID, by tenants.Actor) error
}

// Recipes is tested combinations and what was measured of them: *store.Recipes.
type Recipes interface {
	Add(ctx context.Context, text []byte, by tenants.Actor) (id ids.ID, added bool, err error)
	List(ctx context.Context, by tenants.Actor) ([]store.Stored, error)
	Get(ctx context.Context, id ids.ID, by tenants.Actor) (store.Stored, error)
	Retire(ctx context.Context, id ids.ID, by tenants.Actor) error
	Measure(ctx context.Context, name, digest string, m store.Measurement, by tenants.Actor) error
}

// Fleet is hosts, and units as they are now.
type Fleet interface {
	Hosts(ctx context.Context, by tenants.Actor) ([]HostInfo, error)
	// CreateJoinToken makes a one-time token that lets a new host of this name in.
	CreateJoinToken(ctx context.Context, by tenants.Actor, host string) (token string, expires time.Time, err error)
	// UnitStates is what this process sees of each unit; a unit may be missing.
	UnitStates() map[ids.ID]UnitState
}

// HostInfo is a machine with an agent.
type HostInfo struct {
	ID           ids.ID
	Name         string
	Provider     string
	Region       string
	CapacityKind string     // reserved, on_demand or spot
	GPUHour      money.Nano // price of a GPU-hour
	AgentVersion string
	GPUs         int
	Simulated    bool
	Cordoned     bool
	Connected    bool
	JoinedAt     time.Time
	SeenAt       time.Time // zero = never
}

// UnitState is a unit now.
type UnitState struct {
	State    string // starting, ready, draining, stopped, faulted, or unknown
	Message  string
	Running  int // requests
	Waiting  int
	KVUsage  float64 // 0..1, of the engine's cache
	Eligible bool    // gets new requests
}

// Books is what was used and what it cost.
type Books interface {
	// Usage reads rollups. Rows without usage may be missing.
	Usage(ctx context.Context, by tenants.Actor, q UsageQuery) ([]UsageCell, error)
	// Request is one request that was rated or set aside.
	Request(ctx context.Context, by tenants.Actor, org, id ids.ID) (RequestInfo, error)
	// Quarantine is a page of the events that wait for a decision, newest first; before is the last of the page before.
	Quarantine(ctx context.Context, by tenants.Actor, before ids.ID, limit int) ([]report.Quarantined, error)
	// Quarantined is one of them, also when it was decided about.
	Quarantined(ctx context.Context, by tenants.Actor, id ids.ID) (report.Quarantined, error)
	// Redrive books one after all, Dismiss decides that it is never charged. Both are made once.
	Redrive(ctx context.Context, by tenants.Actor, id ids.ID) error
	Dismiss(ctx context.Context, by tenants.Actor, id ids.ID, why string) error
	// Statement is the organization's ledger over [from, to).
	Statement(ctx context.Context, by tenants.Actor, org ids.ID, from, to time.Time) (*ledger.AccountStatement, error)
}

// UsageQuery asks for usage over [From, To), both multiples of 15 minutes.
type UsageQuery struct {
	Org      ids.ID // ids.Nil = all
	From, To time.Time
	Zone     *time.Location // days are cut in it
	Step     string         // total, day or hour
	Group    string         // none, model, project, key or org
}

// UsageCell is the usage of one group in one step.
type UsageCell struct {
	Start    time.Time
	Group    string // id of the group, formatted; "" for none
	Label    string // its name
	Requests int64
	Errors   int64
	Tokens   usage.Vector
	Charged  money.Nano
	Overrun  money.Nano // borne by the operator
}

// RequestInfo explains one request to the nano-dollar.
type RequestInfo struct {
	Event    usage.Event
	Model    string
	Prices   usage.Prices // of the version that it was charged by
	Charged  money.Nano
	Overrun  money.Nano
	Saved    money.Nano // by cached tokens, against the input price
	Repriced bool
	Txn      ids.ID              // the ledger transaction; ids.Nil = nothing was charged
	Aside    *report.Quarantined // it is in quarantine; nil = it is not
}

// System is the installation itself.
type System interface {
	Status(ctx context.Context) (StatusInfo, error)
	// Reconcile compares engines, events and books up to now and keeps the report.
	Reconcile(ctx context.Context, by tenants.Actor) (ReconcileInfo, error)
}

// StatusInfo is how the installation is.
type StatusInfo struct {
	Version    string
	RaterLag   time.Duration // age of the oldest event that is not rated
	OpenEpochs []EpochInfo   // of gateways whose money has not all come back
}

// EpochInfo is one life of a gateway process.
type EpochInfo struct {
	ID          ids.ID
	Process     string // host and pid
	StartedAt   time.Time
	HeartbeatAt time.Time
	Outstanding money.Nano // allotted and not yet rated or returned
}

// ReconcileInfo is the outcome of a reconcile run.
type ReconcileInfo struct {
	At, Watermark time.Time
	Unexplained   bool
	Report        json.RawMessage // an object
}
