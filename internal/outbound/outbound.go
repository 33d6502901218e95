// Package outbound makes HTTP clients for addresses that customers name: they reach public addresses only, so that nobody
// reaches through us what stands in our network.
package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// Limits of one request.
const (
	dialTimeout = 5 * time.Second
	Timeout     = 15 * time.Second // a whole request
	maxHead     = 64 << 10         // bytes of an answer's head
)

// ErrPrivate says that a name leads somewhere that customers must not reach through us.
var ErrPrivate = errors.New("the address is private, local or reserved")

// special are ranges that netip has no word for: carrier NAT, protocol assignments, documentation, benchmarks, reserved, a
// cloud's way to its hosts under a public address; and those of IPv6 that lead to an IPv4 address or to a site.
var special = prefixes("0.0.0.0/8", "100.64.0.0/10", "168.63.129.16/32", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10")

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// public reports whether an address may be dialled.
func public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.Zone() != "" {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

func allowed(a netip.Addr, loopback bool) bool {
	return public(a) || loopback && a.Unmap().IsLoopback()
}

// NewClient makes a client that dials public addresses only, or also this machine's own: for development. The check is
// behind the resolver, on the address that the socket is about to connect to, so no second look-up can change it. No
// redirect is followed and no proxy used.
func NewClient(loopback bool) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if !allowed(at.Addr(), loopback) {
			return ErrPrivate
		}
		return nil
	}}
	return &http.Client{
		Timeout:       Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DialContext: dialer.DialContext, Proxy: nil, MaxIdleConns: 50, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
			TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: Timeout, MaxResponseHeaderBytes: maxHead, ForceAttemptHTTP2: true},
	}
}
