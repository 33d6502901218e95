package responses

import (
	"bytes"
	"context"
	"log/slog"

	"millrace/db/q"
	"millrace/internal/ids"
	dialect "millrace/serving/protocol/responses"
)

// keep stores a response that has ended, before its client is told. A failure is told as store: false.
func (s *Service) keep(p *Prepared, response []byte, last *Last) bool {
	last.keep(p, response)
	if !p.Request.Store && p.Request.Conversation == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTimeout)
	defer cancel()
	most := int64(MaxOrgBytes)
	if p.Request.Conversation != "" {
		most = unlimited // there was room when it began: a conversation misses no turn
	}
	err := s.write(ctx, p.Caller.Org, most, func(rows *q.Queries) (size int64, err error) {
		if p.Request.Store {
			if size, err = s.insert(ctx, rows, p, response, dialect.Text(dialect.Member(response, "status"))); err != nil {
				return 0, err
			}
		}
		more, err := s.extend(ctx, rows, p, response)
		return size + more, err
	})
	if err != nil {
		slog.Error("a response could not be stored", "request_id", ids.Format(ids.Request, p.ID), "cause", err)
	}
	return err == nil && p.Request.Store
}

func (s *Service) insert(ctx context.Context, rows *q.Queries, p *Prepared, response []byte, status string) (size int64, err error) {
	in := q.ResponseInsertParams{OrgID: p.Caller.Org, ID: p.ID, ProjectID: p.Caller.Project, CreatedAt: s.now(), ExpiresAt: s.now().Add(Retention), Status: status,
		Input: "[]", Response: string(bytes.TrimSpace(response))}
	if len(p.Request.Kept) > 0 {
		in.Input = string(p.Request.Kept)
	}
	if id := responseID(p.Request.Previous); id != ids.Nil {
		in.PreviousID = &id
	}
	if id := conversationID(p.Request.Conversation); id != ids.Nil {
		in.ConversationID = &id
	}
	if p.Request.Background {
		in.Background, in.Streamed, in.Owner = true, p.Request.Stream, &s.owner
	}
	in.Bytes = int64(len(in.Input)+len(in.Response)) + rowBytes
	return in.Bytes, rows.ResponseInsert(ctx, in)
}

// Last is what a connection remembers of its latest response, so that it can be continued without being stored. One
// goroutine. A nil Last remembers nothing.
type Last struct {
	id    string
	items [][]byte
}

func (l *Last) is(id string) bool { return l != nil && id != "" && l.id == id }

func (l *Last) keep(p *Prepared, response []byte) {
	if l == nil {
		return
	}
	l.Forget()
	if status := dialect.Text(dialect.Member(response, "status")); status != dialect.Completed && status != dialect.Incomplete {
		return
	}
	l.id = dialect.Text(dialect.Member(response, "id"))
	l.items = append(append([][]byte(nil), p.before...), p.Request.Kept, bytes.Clone(dialect.Member(response, "output")))
}

// Forget drops what is remembered: a continuation that failed must not be tried from it again.
func (l *Last) Forget() { l.id, l.items = "", nil }
