package up

import (
	"context"
	"errors"
	"net"
	"time"

	"millrace/cmd/millrace/assembly"
	"millrace/internal/clock"
	"millrace/internal/datafolder"
	"millrace/internal/pki"
	"millrace/internal/seal"
)

// startServer starts every role of `serve` in this process, with the master key and CA of the data folder.
func (u *instance) startServer(ctx context.Context, public, agents, metrics net.Listener) error {
	master, err := masterKey(u.folder)
	if err != nil {
		return err
	}
	ca, err := authority(u.folder)
	if err != nil {
		return err
	}
	u.say.step("starting the database's schema, gateway and console")
	d, err := u.openDB(ctx)
	if err != nil {
		return err
	}
	log, err := u.connect(ctx, "log and notices")
	if err != nil {
		return err
	}
	facts, err := u.connect(ctx, "fleet facts")
	if err != nil {
		return err
	}
	locks, err := u.folder.Dir("locks")
	if err != nil {
		return err
	}
	payments, err := u.startPayments(public)
	if err != nil {
		return err
	}
	u.server, err = assembly.Start(ctx, assembly.Config{Roles: assembly.AllRoles, Version: u.cfg.Version, DB: d, Bus: log, Facts: facts, Master: master, CA: ca,
		Public: public, Agents: agents, Metrics: metrics, PublicURL: "http://" + reachable(public), HubURL: "https://" + reachable(agents),
		HubNames: []string{host(reachable(agents)), "localhost"}, LockDir: locks, Validity: u.cfg.Validity, DiskFree: assembly.DiskFree(u.folder.Path("nats")), Payments: payments, Seller: u.cfg.Seller, InvoiceDue: u.cfg.InvoiceDue})
	if err != nil {
		return err
	}
	u.deliverEvents(public)
	u.onEnd(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), u.cfg.Drain+drainMargin)
		defer cancel()
		return u.server.Stop(ctx)
	})
	return nil
}

// drain lets running requests finish while agents and engines still work.
func (u *instance) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), u.cfg.Drain)
	defer cancel()
	return u.server.Drain(ctx)
}

const drainMargin = 10 * time.Second // beyond running requests: the log's flush and the money's return

// masterKey is the installation's master key: made at the first start, from then on the one in the folder.
func masterKey(folder *datafolder.Folder) (*seal.Master, error) {
	text, err := folder.Secret("master.key", func() (string, error) { return seal.Generate(), nil })
	if err != nil {
		return nil, err
	}
	return seal.Parse(text)
}

// authority is the installation's CA: certificate and key are made together at the first start.
func authority(folder *datafolder.Folder) (*pki.CA, error) {
	const certFile, keyFile = "ca.pem", "ca.key"
	var cert string
	key, err := folder.Secret(keyFile, func() (string, error) {
		ca, keyPEM, err := pki.NewCA(clock.System)
		if err != nil {
			return "", err
		}
		cert = string(ca.CertPEM())
		return string(keyPEM), datafolder.WriteFile(folder.Path(certFile), ca.CertPEM(), 0o644)
	})
	if err != nil {
		return nil, err
	}
	if cert == "" {
		cert, err = folder.Secret(certFile, func() (string, error) {
			return "", errors.New("the data folder has a CA key without its certificate (ca.pem): restore the file from a backup")
		})
	}
	if err != nil {
		return nil, err
	}
	return pki.LoadCA([]byte(cert), []byte(key), clock.System)
}

// reachable is a listener's address as a client on this machine dials it.
func reachable(l net.Listener) string {
	a := l.Addr().(*net.TCPAddr)
	if a.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", portOf(a))
	}
	return a.String()
}

func portOf(a *net.TCPAddr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

func host(address string) string {
	h, _, _ := net.SplitHostPort(address)
	return h
}
