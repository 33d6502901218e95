package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// CheckHost refuses, with ErrPrivate, a host that can be seen to lead nowhere public without asking the resolver: an address,
// however it is written, and localhost. What passes is checked again when it is dialled.
func CheckHost(host string, loopback bool) error {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	if a, err := netip.ParseAddr(host); err == nil {
		if !allowed(a, loopback) {
			return ErrPrivate
		}
		return nil
	}
	if last == "" || '0' <= last[0] && last[0] <= '9' { // 0x7f.1, 2130706433: no public name ends so, and some resolvers take it
		return ErrPrivate
	}
	if last == "localhost" && !loopback {
		return ErrPrivate
	}
	return nil
}

// Plain says why a request failed, for customers to read: nothing of our network is in it, neither addresses nor resolvers.
func Plain(err error) error {
	var name *net.DNSError
	var network *net.OpError
	switch {
	case errors.Is(err, ErrPrivate):
		return ErrPrivate
	case errors.As(err, &name) && name.IsNotFound:
		return errors.New("the name was not found")
	case name != nil:
		return errors.New("the name could not be looked up")
	case errors.As(err, &network) && network.Op == "dial":
		return errors.New("the address could not be reached")
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s", Timeout)
	case network != nil && network.Op != "remote error": // a TLS alert is the other side's word
		return errors.New("the connection broke off")
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}
