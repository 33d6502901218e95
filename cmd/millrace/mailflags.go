package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"millrace/tenants/mailer"
)

// mailFlags is how a command reaches the mail server.
type mailFlags struct {
	SMTPAddress      string `name:"smtp-address" help:"Mail server, host:port. Without it mail waits in the outbox, for operators to read." placeholder:"HOST:PORT" env:"MILLRACE_SMTP_ADDRESS"`
	SMTPFrom         string `name:"smtp-from" help:"Sender of mail." placeholder:"NAME <ADDRESS>" env:"MILLRACE_SMTP_FROM"`
	SMTPUser         string `name:"smtp-user" help:"User at the mail server." env:"MILLRACE_SMTP_USER"`
	SMTPPassword     string `name:"smtp-password" help:"Password at the mail server." env:"MILLRACE_SMTP_PASSWORD" hidden:""`
	SMTPPasswordFile string `name:"smtp-password-file" help:"File with the password at the mail server." type:"path" env:"MILLRACE_SMTP_PASSWORD_FILE"`
	SMTPPlain        bool   `name:"smtp-plain" help:"Talk to a mail server that offers no TLS. A password is never sent to one." env:"MILLRACE_SMTP_PLAIN"`
}

// mailServer gives nil when none is set.
func (f mailFlags) mailServer() (*mailer.Server, error) {
	if f.SMTPAddress == "" {
		return nil, nil
	}
	if f.SMTPFrom == "" {
		return nil, errors.New("a mail server needs a sender: set --smtp-from")
	}
	s := &mailer.Server{Address: f.SMTPAddress, From: f.SMTPFrom, User: f.SMTPUser, Password: f.SMTPPassword, Plain: f.SMTPPlain}
	if s.Password == "" && f.SMTPPasswordFile != "" {
		text, err := os.ReadFile(f.SMTPPasswordFile)
		if err != nil {
			return nil, fmt.Errorf("mail server's password: %w", err)
		}
		s.Password = strings.TrimSpace(string(text))
	}
	return s, nil
}
