// Package assembly joins the rooms into a running server: which roles a process plays, in what order things start, and in
// what order they end. It decides nothing about requests or money.
//
// Roles. gateway: inference. control: console and control API. hub: the agents' side. worker: rater, fence, partitions.
// A process plays any of them; `millrace up` plays all.
package assembly

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"millrace/agents/release"
	"millrace/billing/invoice"
	"millrace/db"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/money"
	"millrace/internal/pki"
	"millrace/internal/seal"
	"millrace/serving/fleet"
	"millrace/tenants/mailer"
)

// Roles says what a process does.
type Roles struct {
	Gateway, Control, Hub, Worker bool
}

// AllRoles is one process that does everything.
var AllRoles = Roles{true, true, true, true}

// ParseRoles reads a comma-separated list; "all" or nothing means all.
func ParseRoles(s string) (r Roles, err error) {
	if s == "" || s == "all" {
		return AllRoles, nil
	}
	for _, name := range strings.Split(s, ",") {
		switch strings.TrimSpace(name) {
		case "gateway":
			r.Gateway = true
		case "control":
			r.Control = true
		case "hub":
			r.Hub = true
		case "worker":
			r.Worker = true
		default:
			return r, fmt.Errorf("unknown role %q: choose from gateway, control, hub, worker", name)
		}
	}
	return r, nil
}

// Config of a server. What a role needs must be set.
type Config struct {
	Roles   Roles
	Version string
	Clock   clock.Clock // nil = the system's
	DB      *db.DB
	Bus     *bus.Bus // the log and notices
	Facts   *bus.Bus // fleet facts, on a connection of their own
	Master  *seal.Master
	CA      *pki.CA

	Public        net.Listener    // console, control API and inference
	Agents        net.Listener    // TLS is added here
	Metrics       net.Listener    // loopback
	PublicURL     string          // as people reach Public
	HubURL        string          // as agents reach Agents
	HubNames      []string        // addresses in the hub's certificate
	DataLinks     net.Listener    // hosts that nobody can dial dial this gateway there; TLS is added; nil = they do not
	DataLinksURL  string          // as agents reach it
	AgentReleases *release.Folder // programs that agents may follow; nil = none
	LockDir       string          // of gateway epochs
	Validity      time.Duration   // of a gateway epoch; 0 = the standard
	DiskFree      func() (uint64, error)
	Secure        bool      // the public address is reached by TLS
	Payments      *Payments // nil = customers cannot pay by card

	FleetLimits fleet.Limits // of the role worker, and of what operators are shown in its process; zero = the default ones

	Mail          *mailer.Server // nil = mail waits in the outbox
	LoopbackHooks bool           // customers' webhooks may lead to this machine: for development
	Seller        invoice.Seller // who sends invoices
	InvoiceDue    time.Duration  // from an invoice's becoming final; 0 = invoice.DueAfter
	RefuseHosted  bool           // tools that OpenAI's servers run are refused in Responses, not dropped
	ApprovalAbove money.Nano     // what an operator gives or takes above it needs a second one; 0 = credit.StandardApproval
}

func (c *Config) check() error {
	if c.Clock == nil {
		c.Clock = clock.System
	}
	switch {
	case c.DB == nil || c.Bus == nil || c.Facts == nil || c.Master == nil || c.CA == nil:
		return errors.New("a server needs a database, a bus, a master key and a CA")
	case (c.Roles.Gateway || c.Roles.Control) && c.Public == nil:
		return errors.New("the gateway and control roles need a public address to listen on")
	case c.Roles.Hub && c.Agents == nil:
		return errors.New("the hub role needs an address for agents to dial")
	case c.Roles.Gateway && c.LockDir == "":
		return errors.New("the gateway role needs a folder for its lock files")
	case c.Roles == Roles{}:
		return errors.New("a server needs at least one role")
	}
	return nil
}
