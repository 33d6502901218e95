package tenants

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

const maxIdempotencyKey = 200 // bytes

// claim remembers that the actor's key made the resource id, and gives the id that the key's first request made: another
// one means that this request is a repetition. A key that comes again with other content is a Conflict.
func (s *Service) claim(ctx context.Context, rows *q.Queries, by Actor, action, key string, content any, id ids.ID) (ids.ID, error) {
	if key == "" {
		return id, nil
	}
	if len(key) > maxIdempotencyKey {
		return ids.Nil, fault.New(fault.Invalid, "The idempotency key may have at most %d bytes.", maxIdempotencyKey).WithParam("Idempotency-Key")
	}
	text, err := json.Marshal(content)
	if err != nil {
		return ids.Nil, err
	}
	sum := sha256.Sum256(text)
	row, err := rows.ClaimIdempotencyKey(ctx, q.ClaimIdempotencyKeyParams{Key: action + " " + by.Name() + " " + key,
		RequestHash: sum[:], Resource: id, CreatedAt: s.now()})
	if err != nil {
		return ids.Nil, err
	}
	if subtle.ConstantTimeCompare(row.RequestHash, sum[:]) == 0 {
		return ids.Nil, fault.New(fault.Conflict, "This idempotency key was used for another request.").WithCode("idempotency_key_reused")
	}
	return row.Resource, nil
}
