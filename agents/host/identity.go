package host

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/datafolder"
	"millrace/internal/ids"
	"millrace/internal/pki"
)

const (
	identityName = "identity.json"
	secretMode   = 0o600
	renewCheck   = time.Minute
	renewTimeout = 20 * time.Second
)

// identity is who this host is to its hub and its gateways.
type identity struct {
	source *pki.Source
	trust  *pki.Trust
}

// stored is the identity's file: secret.
type stored struct {
	Name string `json:"name"`
	Key  []byte `json:"key"`
	Cert []byte `json:"cert"`
	CA   []byte `json:"ca"`
}

func (s *stored) open(c clock.Clock) (*identity, *tls.Certificate, ids.ID, error) {
	cert, name, err := pki.Identity(s.Cert, s.Key)
	if err != nil {
		return nil, nil, ids.Nil, err
	}
	host, ok := name.HostID()
	if !ok {
		return nil, nil, ids.Nil, fmt.Errorf("the certificate is %q's, not a host's", name)
	}
	trust, err := pki.ParseTrust(s.CA, c)
	if err != nil {
		return nil, nil, ids.Nil, err
	}
	return &identity{source: pki.NewSource(cert, c), trust: trust}, cert, host, nil
}

// identify takes the identity from the folder, or joins. A token of another authority than the identity's makes it join
// again: the installation was made anew.
func (a *agent) identify(ctx context.Context) error {
	if a.cfg.Join != "" {
		t, err := wire.ParseJoinToken(a.cfg.Join)
		if err != nil {
			return err
		}
		a.token = &t
	}
	self, err := a.restore()
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		a.log.Warn("the stored identity is of no use", "error", err)
	case err == nil && (a.token == nil || bytes.Equal(self.trust.Digest(), a.token.CA[:])):
		a.self = self
		return nil
	}
	if a.token == nil {
		return errors.New("this host has no identity: start it once with --join and a token from the console")
	}
	return a.join(ctx)
}

func (a *agent) restore() (*identity, error) {
	text, err := os.ReadFile(a.folder.Path(identityName))
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	self, cert, host, err := s.open(a.cfg.Clock)
	if err != nil {
		return nil, err
	}
	if !pki.Renewable(cert, a.cfg.Clock) {
		return nil, errors.New("the certificate ended too long ago to be renewed")
	}
	a.log.Info("this host", "name", s.Name, "id", host)
	return self, nil
}

// join turns the token into an identity. A hub that is away is waited for; a hub that refuses ends it.
func (a *agent) join(ctx context.Context) error {
	token := *a.token
	client := a.direct(pki.DialJoin(token.CA[:], a.cfg.Clock))
	defer client.CloseIdleConnections()
	for pause := newBackoff(); ; {
		err := a.enroll(ctx, client, wire.PathJoin, func(csr []byte) any {
			return wire.JoinRequest{Token: a.cfg.Join, CSR: csr}
		}, token.CA[:])
		var refused *hubError
		switch {
		case err == nil:
			a.token = nil // it works once
			a.log.Info("joined", "hub", a.cfg.Hub)
			return nil
		case errors.As(err, &refused) && refused.final():
			return fmt.Errorf("the hub refuses this host: %w", err)
		}
		a.log.Warn("cannot join yet", "error", err)
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

// renew replaces the certificate, with a new key, when it is past half of its life.
func (a *agent) renew(ctx context.Context) error {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	if cert, err := a.self.source.Current(); err != nil || a.cfg.Clock.Now().Before(pki.HalfLife(cert)) {
		return err // the link or the clock was first
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	client := a.direct(a.self.trust.Dial(a.self.source, pki.Hub))
	defer client.CloseIdleConnections()
	return a.enroll(ctx, client, wire.PathRenew, func(csr []byte) any { return wire.RenewRequest{CSR: csr} }, a.self.trust.Digest())
}

// enroll asks for a certificate and keeps it. The authority must be the one that is expected.
func (a *agent) enroll(ctx context.Context, client *http.Client, path string, request func(csr []byte) any, digest []byte) error {
	key, err := pki.NewKey()
	if err != nil {
		return err
	}
	csr, err := pki.Request(key)
	if err != nil {
		return err
	}
	var answer wire.JoinResponse
	if err := call(ctx, client, a.cfg.Hub+path, request(csr), &answer); err != nil {
		return err
	}
	s := stored{Name: answer.Name, Key: key, Cert: answer.Cert, CA: answer.CA}
	self, cert, host, err := s.open(a.cfg.Clock)
	if err != nil {
		return fmt.Errorf("the hub's answer: %w", err)
	}
	if !bytes.Equal(self.trust.Digest(), digest) || host != answer.Host {
		return errors.New("the hub's answer: another authority's certificate, or another host's")
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := datafolder.WriteFile(a.folder.Path(identityName), text, secretMode); err != nil {
		return fmt.Errorf("the identity cannot be kept: %w", err)
	}
	if a.self == nil {
		a.self = self
	} else {
		a.self.source.Set(cert)
	}
	return nil
}

// stayFresh renews the certificate at half of its life.
func (a *agent) stayFresh(ctx context.Context) {
	for a.self.source.WaitHalfLife(ctx, renewCheck) == nil {
		err := a.renew(ctx)
		if err == nil {
			a.log.Info("certificate renewed")
			continue
		}
		if ctx.Err() == nil {
			a.log.Warn("the certificate cannot be renewed yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewCheck):
		}
	}
}
