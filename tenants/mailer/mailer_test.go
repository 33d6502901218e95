package mailer_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/tenants/mailer"
)

// post is a mail server that takes everything, or refuses the recipients it is told to.
type post struct {
	address string
	mu      sync.Mutex
	refuse  string
	got     []*mail.Message
	bodies  []string
}

func openPost(t *testing.T) *post {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &post{address: l.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer conn.Close(); p.serve(conn) })
		}
	})
	return p
}

func (p *post) serve(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(conn)
	fmt.Fprint(conn, "220 test\r\n")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch verb := strings.ToUpper(strings.TrimSpace(line)); {
		case strings.HasPrefix(verb, "RCPT"):
			p.mu.Lock()
			bad := p.refuse != "" && strings.Contains(line, p.refuse)
			p.mu.Unlock()
			if bad {
				fmt.Fprint(conn, "550 no such person\r\n")
				continue
			}
			fmt.Fprint(conn, "250 ok\r\n")
		case verb == "DATA":
			fmt.Fprint(conn, "354 go on\r\n")
			p.take(in)
			fmt.Fprint(conn, "250 taken\r\n")
		case verb == "QUIT":
			fmt.Fprint(conn, "221 bye\r\n")
			return
		default:
			fmt.Fprint(conn, "250 ok\r\n")
		}
	}
}

func (p *post) take(in *bufio.Reader) {
	var text strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil || line == ".\r\n" {
			break
		}
		text.WriteString(strings.TrimPrefix(line, "."))
	}
	m, err := mail.ReadMessage(strings.NewReader(text.String()))
	if err != nil {
		return
	}
	body, _ := io.ReadAll(quotedprintable.NewReader(m.Body))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got, p.bodies = append(p.got, m), append(p.bodies, string(body))
}

type world struct {
	t     *testing.T
	db    *db.DB
	clock *clock.Manual
	post  *post
	m     *mailer.Mailer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), clock: clock.NewManual(time.Now().UTC().Truncate(time.Second)), post: openPost(t)}
	var err error
	if w.m, err = mailer.New(w.db, w.clock, mailer.Server{Address: w.post.address, From: "Millrace <hello@millrace.example>", Plain: true}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) write(to, subject, body string, age time.Duration) {
	w.t.Helper()
	at := w.clock.Now().Add(-age)
	w.exec("insert into outbox (id, recipient, subject, body, created_at, next_at) values ($1, $2, $3, $4, $5, $5)", ids.New(), to, subject, body, at)
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error { _, err := tx.Exec(w.t.Context(), sql, args...); return err })
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) unsent() (n int, problem string) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(w.t.Context(), "select count(*), coalesce(max(problem), '') from outbox where sent_at is null").Scan(&n, &problem)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n, problem
}

func TestMailLeavesOnce(t *testing.T) {
	w := newWorld(t)
	w.write("ann@acme.example", "80 % of the cap of Zoë\r\nBcc: eve@evil.example", "Grüße,\n.\nline\n", time.Minute)
	for range 2 {
		if err := w.m.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(time.Hour)
	}
	if len(w.post.got) != 1 {
		t.Fatalf("%d messages left", len(w.post.got))
	}
	h := w.post.got[0].Header
	subject, err := new(mime.WordDecoder).DecodeHeader(h.Get("Subject"))
	if err != nil || subject != "80 % of the cap of Zoë  Bcc: eve@evil.example" || h.Get("Bcc") != "" || h.Get("To") != "<ann@acme.example>" {
		t.Errorf("subject %q, headers %v, %v", subject, h, err)
	}
	if got := strings.ReplaceAll(w.post.bodies[0], "\r\n", "\n"); got != "Grüße,\n.\nline\n" {
		t.Errorf("body %q", got)
	}
	if n, _ := w.unsent(); n != 0 {
		t.Errorf("%d are not marked as sent", n)
	}
}

func TestWhatIsRefusedWaitsAndOthersGoOn(t *testing.T) {
	w := newWorld(t)
	w.post.refuse = "gone@"
	w.write("gone@acme.example", "a", "b", 2*time.Second)
	w.write("ann@acme.example", "a", "b", time.Second)
	if err := w.m.Turn(t.Context()); err == nil {
		t.Error("a refusal was no error")
	}
	if n, problem := w.unsent(); n != 1 || !strings.Contains(problem, "no such person") || len(w.post.got) != 1 {
		t.Errorf("%d wait, problem %q, %d left", n, problem, len(w.post.got))
	}
	w.post.mu.Lock()
	w.post.refuse = ""
	w.post.mu.Unlock()
	w.clock.Advance(time.Second)
	if err := w.m.Turn(t.Context()); err != nil || len(w.post.got) != 1 {
		t.Errorf("it was tried again at once: %v", err)
	}
	w.clock.Advance(time.Hour)
	if err := w.m.Turn(t.Context()); err != nil || len(w.post.got) != 2 {
		t.Errorf("%d left, %v", len(w.post.got), err)
	}
}

func TestOldMailStays(t *testing.T) {
	w := newWorld(t)
	w.write("ann@acme.example", "a sign-in link of last week", "b", 7*24*time.Hour)
	if err := w.m.Turn(t.Context()); err != nil || len(w.post.got) != 0 {
		t.Errorf("%d left, %v", len(w.post.got), err)
	}
}

func TestAPasswordNeverGoesInTheClear(t *testing.T) {
	w := newWorld(t)
	w.write("ann@acme.example", "a", "b", time.Second)
	m, err := mailer.New(w.db, w.clock, mailer.Server{Address: w.post.address, From: "a@b.example"}) // TLS is wanted
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Turn(context.WithoutCancel(t.Context())); err == nil || !strings.Contains(err.Error(), "no TLS") {
		t.Errorf("%v", err)
	}
	if _, err := mailer.New(w.db, w.clock, mailer.Server{Address: "mail.example", From: "a@b.example"}); err == nil {
		t.Error("a server without a port was taken")
	}
}
