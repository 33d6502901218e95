package hub

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

const logTimeout = 10 * time.Second

// UnitLog asks a unit's host for the end of its engine's log. It may hold what customers wrote, so that who reads it is
// audited. Only the hub that the host is linked to can ask.
func (h *Hub) UnitLog(ctx context.Context, host, unit ids.ID, bytes int, by tenants.Actor) (string, error) {
	if err := by.RequireOperator(); err != nil {
		return "", err
	}
	if bytes <= 0 || bytes > wire.MaxLogBytes {
		return "", fault.New(fault.Invalid, "Of a log, 1 to %d bytes can be read at once.", wire.MaxLogBytes).WithParam("bytes")
	}
	h.mu.Lock()
	var l *link.Link
	if me := h.links[host]; me != nil {
		l = me.link
	}
	h.mu.Unlock()
	if l == nil {
		return "", fault.New(fault.Unavailable, "The unit's host has no link to this process.").WithCode("host_not_linked")
	}
	err := h.inTx(ctx, func(tx pgx.Tx) error {
		own, err := q.New(tx).IsHostUnit(ctx, q.IsHostUnitParams{ID: unit, HostID: host})
		if err == nil && !own {
			err = fault.New(fault.NotFound, "The host does not run that unit.").WithCode("unit_not_found")
		}
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "unit.log", Target: ids.Format(ids.Unit, unit), At: h.cfg.Clock.Now().UTC()})
	})
	if err != nil {
		return "", err
	}
	return askLog(ctx, l, unit, bytes)
}

func askLog(ctx context.Context, l *link.Link, unit ids.ID, bytes int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://link"+wire.LogPrefix+unit.String()+"?bytes="+strconv.Itoa(bytes), nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: l.Transport()}).Do(req)
	if err != nil {
		return "", fault.New(fault.Unavailable, "The unit's host does not answer.").WithCause(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxLogBytes))
	switch {
	case err != nil:
		return "", fault.New(fault.Unavailable, "The unit's host broke off.").WithCause(err)
	case resp.StatusCode == http.StatusNotFound:
		return "", fault.New(fault.NotFound, "The host has no log of that unit yet.").WithCode("no_log")
	case resp.StatusCode != http.StatusOK:
		return "", fault.New(fault.Unavailable, "The unit's host cannot read the log.").WithCause(errors.New(resp.Status))
	}
	return strings.ToValidUTF8(string(text), "?"), nil
}
