package outbound_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"syscall"
	"testing"

	"millrace/internal/outbound"
)

func TestHostsThatAreSeenToBePrivate(t *testing.T) {
	for host, want := range map[string]struct{ public, development bool }{
		"example.com": {true, true}, "1.1.1.1": {true, true}, "2606:4700::1111": {true, true}, "4chan.example": {true, true},
		"127.0.0.1": {false, true}, "::1": {false, true}, "localhost": {false, true}, "LOCALHOST.": {false, true},
		"10.0.0.1": {}, "169.254.169.254": {}, "::ffff:10.0.0.1": {}, "0x7f.1": {}, "2130706433": {}, "": {},
	} {
		if got := outbound.CheckHost(host, false) == nil; got != want.public {
			t.Errorf("%s: %v", host, got)
		}
		if got := outbound.CheckHost(host, true) == nil; got != want.development {
			t.Errorf("%s in development: %v", host, got)
		}
	}
}

func TestFailuresTellNothingOfOurNetwork(t *testing.T) {
	for want, err := range map[string]error{
		"the name was not found":           &net.DNSError{Err: "no such host", Name: "x.example", Server: "10.0.0.53:53", IsNotFound: true},
		"the name could not be looked up":  &net.DNSError{Err: "server misbehaving", Name: "x.example", Server: "10.0.0.53:53"},
		"the address could not be reached": &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		"the connection broke off":         &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
		"no answer within 15s":             context.DeadlineExceeded,
		"x509: certificate has expired":    errors.New("x509: certificate has expired"),
		outbound.ErrPrivate.Error():        &net.OpError{Op: "dial", Net: "tcp", Err: outbound.ErrPrivate},
	} {
		wrapped := &url.Error{Op: "Post", URL: "https://x.example", Err: err}
		if _, name := err.(*net.DNSError); name {
			wrapped.Err = &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
		if got := outbound.Plain(wrapped); got.Error() != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
