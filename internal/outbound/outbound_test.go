package outbound

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestOnlyPublicAddressesAreDialled(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.5.5", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "0.1.2.3",
		"224.0.0.1", "255.255.255.255", "240.1.1.1", "192.0.2.1", "198.18.0.1", "::1", "::", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "fe80::1", "fe80::1%eth0",
		"fd00::1", "fc00::1", "ff02::1", "64:ff9b::a00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1", "2001:db8::1", "168.63.129.16", "::a00:1", "::127.0.0.1", "fec0::1"} {
		if public(netip.MustParseAddr(a)) {
			t.Errorf("%s would be dialled", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"} {
		if !public(netip.MustParseAddr(a)) {
			t.Errorf("%s would be refused", a)
		}
	}
}

// The check is at the socket: a name that leads here is refused like the address itself, unless it is allowed.
func TestNamesThatLeadHereAreRefused(t *testing.T) {
	reached := false
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer s.Close()
	for _, address := range []string{s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)} {
		answer, err := NewClient(false).Do(httptest.NewRequest(http.MethodPost, address, nil).WithContext(t.Context()))
		if err == nil {
			answer.Body.Close()
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = NewClient(false).Do(r); !errors.Is(err, ErrPrivate) || reached {
		t.Errorf("reached=%v, %v", reached, err)
	}
	if answer, err := NewClient(true).Do(r); err != nil || !reached {
		t.Errorf("loopback was allowed: %v", err)
	} else {
		answer.Body.Close()
	}
}
