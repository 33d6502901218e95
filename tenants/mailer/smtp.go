package mailer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"strings"
	"time"

	"millrace/db/q"
)

// Server is a mail server.
type Server struct {
	Address  string // host:port; port 465 speaks TLS from the start, others by STARTTLS
	From     string // "Millrace <billing@example.com>"
	User     string // "" = no sign-in
	Password string
	Plain    bool // allows a server without TLS; never with a password, but on this machine
}

func (s *Server) check() error {
	if _, _, err := net.SplitHostPort(s.Address); err != nil {
		return fmt.Errorf("mailer: the mail server is host:port, not %q", s.Address)
	}
	if _, err := mail.ParseAddress(s.From); err != nil {
		return fmt.Errorf("mailer: %q cannot be a sender", s.From)
	}
	return nil
}

const implicitTLS = "465"

// send delivers one message over a connection of its own.
func (s *Server) send(ctx context.Context, row q.Outbox, now time.Time) error {
	from, err := mail.ParseAddress(s.From)
	if err != nil {
		return err
	}
	to, err := mail.ParseAddress(row.Recipient)
	if err != nil {
		return fmt.Errorf("%q is no address", row.Recipient)
	}
	client, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Mail(from.Address); err != nil {
		return err
	}
	if err := client.Rcpt(to.Address); err != nil {
		return err
	}
	w, err := client.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(s.compose(row, from, to, now)); err != nil {
		return err
	}
	if err := w.Close(); err != nil { // here the server takes it
		return err
	}
	_ = client.Quit() // it is delivered, whatever comes now
	return nil
}

func (s *Server) connect(ctx context.Context) (*smtp.Client, error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(sendTimeout) // of a socket: it knows no other clock
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	secure := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	var conn net.Conn
	if port == implicitTLS {
		conn, err = (&tls.Dialer{Config: secure}).DialContext(ctx, "tcp", s.Address)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", s.Address)
	}
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	client, err := smtp.NewClient(conn, host)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := s.greet(client, host, port, secure); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

func (s *Server) greet(client *smtp.Client, host, port string, secure *tls.Config) error {
	if port != implicitTLS {
		if ok, _ := client.Extension("STARTTLS"); ok {
			if err := client.StartTLS(secure); err != nil {
				return err
			}
		} else if !s.Plain {
			return errors.New("the mail server offers no TLS")
		}
	}
	if s.User == "" {
		return nil
	}
	return client.Auth(smtp.PlainAuth("", s.User, s.Password, host)) // refuses by itself to send a password in the clear
}

// compose writes the message. Header values are encoded, so nothing in them can begin another header.
func (s *Server) compose(row q.Outbox, from, to *mail.Address, now time.Time) []byte {
	_, domain, _ := strings.Cut(from.Address, "@")
	var b strings.Builder
	for _, h := range [][2]string{
		{"From", from.String()}, {"To", to.String()}, {"Subject", mime.QEncoding.Encode("utf-8", oneLine(row.Subject))},
		{"Date", now.Format(time.RFC1123Z)}, {"Message-ID", "<" + row.ID.String() + "@" + domain + ">"},
		{"MIME-Version", "1.0"}, {"Content-Type", "text/plain; charset=utf-8"}, {"Content-Transfer-Encoding", "quoted-printable"},
		{"Auto-Submitted", "auto-generated"},
	} {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(strings.ReplaceAll(strings.ReplaceAll(row.Body, "\r\n", "\n"), "\n", "\r\n"))) // a strings.Builder takes everything
	_ = w.Close()
	return []byte(b.String())
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

func clip(text string) string {
	if len(text) > maxProblem {
		text = text[:maxProblem]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
}
