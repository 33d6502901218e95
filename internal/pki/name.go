package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"millrace/internal/ids"
)

// Name is who a certificate speaks for: the path of its spiffe://millrace URI.
type Name string

// Hub is the control side of the agents' link.
const Hub Name = "hub"

const (
	trustDomain   = "millrace"
	hostPrefix    = "host/"
	gatewayPrefix = "gateway/"
)

// Host is the name of a host's agent.
func Host(id ids.ID) Name { return Name(hostPrefix + id.String()) }

// Gateway is the name of a gateway process.
func Gateway(name string) Name { return Name(gatewayPrefix + name) }

// HostID gives the host a name stands for; ok is false for other names.
func (n Name) HostID() (id ids.ID, ok bool) {
	s, ok := strings.CutPrefix(string(n), hostPrefix)
	if !ok {
		return ids.Nil, false
	}
	id, err := ids.Parse(ids.Host, s)
	return id, err == nil
}

// IsGateway reports whether the name is a gateway's.
func (n Name) IsGateway() bool {
	return len(n) > len(gatewayPrefix) && strings.HasPrefix(string(n), gatewayPrefix)
}

func (n Name) uri() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/" + string(n)}
}

// NameOf reads the one name of a certificate.
func NameOf(cert *x509.Certificate) (Name, error) {
	if len(cert.URIs) != 1 {
		return "", fmt.Errorf("pki: a certificate with %d URIs, want one", len(cert.URIs))
	}
	u := cert.URIs[0]
	if u.Scheme != "spiffe" || u.Host != trustDomain || len(u.Path) < 2 || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("pki: a certificate of another trust domain")
	}
	return Name(u.Path[1:]), nil
}
