package hub

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// TokenLife is how long a join token works.
const TokenLife = 24 * time.Hour

var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkHostName(name string) error {
	if !hostName.MatchString(name) {
		return fault.New(fault.Invalid, "A host's name has letters, digits and ._- and at most 63 characters.").WithParam("name")
	}
	return nil
}

// JoinToken makes a token that lets one machine become the host of this name, once, within TokenLife. The name of a known
// host gives that host a new identity: its old one ends when the token is used.
func (h *Hub) JoinToken(ctx context.Context, name string, by tenants.Actor) (string, error) {
	if err := by.RequireOperator(); err != nil {
		return "", err
	}
	if err := checkHostName(name); err != nil {
		return "", err
	}
	token := wire.NewJoinToken(h.cfg.CA.Digest())
	err := h.inTx(ctx, func(tx pgx.Tx) error {
		err := q.New(tx).InsertJoinToken(ctx, q.InsertJoinTokenParams{TokenHash: token.Hash(), HostName: name, CreatedBy: by.Name(),
			Seconds: int64(TokenLife / time.Second)})
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "host.invite", Target: name, At: h.cfg.Clock.Now().UTC()})
	})
	if err != nil {
		return "", err
	}
	return token.String(), nil
}

var errToken = fault.New(fault.Unauthenticated, "This join token is unknown, used or too old: make another one.").WithCode("bad_join_token")

// join turns a token into an identity.
func (h *Hub) join(r *http.Request) (any, error) {
	var in wire.JoinRequest
	if err := read(r, maxJoinBytes, &in); err != nil {
		return nil, err
	}
	token, err := wire.ParseJoinToken(in.Token)
	if err != nil {
		return nil, errToken
	}
	var out wire.JoinResponse
	err = h.inTx(r.Context(), func(tx pgx.Tx) error {
		query := q.New(tx)
		row, err := query.LockJoinToken(r.Context(), token.Hash())
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && (row.Used || row.Expired):
			return errToken
		case err != nil:
			return err
		}
		id, err := query.EnsureHost(r.Context(), q.EnsureHostParams{ID: ids.New(), Name: row.HostName})
		if err != nil {
			return err
		}
		// The clock that also dates the certificate: the database's may go before it.
		if err := query.HostJoins(r.Context(), q.HostJoinsParams{ID: id, JoinedAt: h.cfg.Clock.Now()}); err != nil {
			return err
		}
		if out, err = h.issue(in.CSR, id, row.HostName); err != nil {
			return err
		}
		if err := query.UseJoinToken(r.Context(), q.UseJoinTokenParams{TokenHash: token.Hash(), HostID: id}); err != nil {
			return err
		}
		return audit.Append(r.Context(), tx, joiner{remoteIP(r)}, audit.Change{Action: "host.join", Target: ids.Format(ids.Host, id),
			After: map[string]string{"name": row.HostName, "token": hex.EncodeToString(token.Hash()[:4])}, At: h.cfg.Clock.Now().UTC()})
	})
	if fault.Is(err, fault.Unauthenticated) {
		h.refused(refusal{byStranger, "join token", "unknown, used or too old"}, remoteIP(r))
	}
	if err != nil {
		return nil, err
	}
	h.notice() // gateways must learn that the host's earlier identity has ended
	h.cfg.Log.Info("a host joined", "name", out.Name, "host", out.Host)
	return out, nil
}

// joiner is who joins, for the audit log: a machine with a token.
type joiner struct{ address string }

// AuditIdentity implements audit.Author.
func (j joiner) AuditIdentity() audit.Identity {
	return audit.Identity{Actor: "join token", IP: j.address}
}

// remoteIP is the caller's address without its port.
func remoteIP(r *http.Request) string {
	if ip, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return ip
	}
	return r.RemoteAddr
}

func (h *Hub) issue(csr []byte, id ids.ID, name string) (wire.JoinResponse, error) {
	cert, err := h.cfg.CA.IssueHost(csr, id)
	if err != nil {
		return wire.JoinResponse{}, fault.New(fault.Invalid, "The certificate request is of no use.").WithCause(err)
	}
	return wire.JoinResponse{Host: id, Name: name, Cert: cert, CA: h.cfg.CA.CertPEM()}, nil
}

// renew gives a known host a fresh certificate, also some time after the old one ended.
func (h *Hub) renew(r *http.Request) (any, error) {
	var in wire.RenewRequest
	if err := read(r, maxJoinBytes, &in); err != nil {
		return nil, err
	}
	host, err := h.known(r)
	if err != nil {
		return nil, err
	}
	return h.issue(in.CSR, host.ID, host.Name)
}

var errUnknownHost = fault.New(fault.Forbidden, "This host is not known here (any more).").WithCode("unknown_host")

// known is the host that calls, by its certificate and the database. A certificate from before the host's last join is of
// an identity that the join has ended.
func (h *Hub) known(r *http.Request) (q.GetHostRow, error) {
	name, err := pki.Peer(r.TLS)
	if err != nil {
		return q.GetHostRow{}, errUnknownHost
	}
	id, ok := name.HostID()
	if !ok {
		return q.GetHostRow{}, errUnknownHost
	}
	var host q.GetHostRow
	err = h.inTx(r.Context(), func(tx pgx.Tx) (err error) {
		host, err = q.New(tx).GetHost(r.Context(), id)
		return err
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return q.GetHostRow{}, err
	}
	reason := ""
	if err != nil {
		reason = "certificate of a host that is not known"
	} else if host.Removed {
		reason = "certificate of a host that was removed"
	} else if ended, err := pki.IssuedBefore(r.TLS, host.JoinedAt); err != nil || ended {
		reason = "certificate of an identity that a later join has ended"
	}
	if reason != "" {
		h.refused(refusal{byHost, ids.Format(ids.Host, id), reason}, remoteIP(r))
		return q.GetHostRow{}, errUnknownHost
	}
	return host, nil
}
