package batch

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Prefixes of public ids, as OpenAI has them.
const (
	filePrefix  = "file-"
	batchPrefix = "batch_"
	linePrefix  = "batch_req_"
)

// FormatFile writes a file's id.
func FormatFile(id ids.ID) string { return filePrefix + hex.EncodeToString(id[:]) }

// FormatBatch writes a batch's id.
func FormatBatch(id ids.ID) string { return batchPrefix + hex.EncodeToString(id[:]) }

// ParseFile reads a file's id. What cannot be one is a file that there is not.
func ParseFile(s string) (ids.ID, error) {
	return parse(filePrefix, s, "There is no file %s.", "file_not_found", "file_id")
}

// ParseBatch reads a batch's id. What cannot be one is a batch that there is not.
func ParseBatch(s string) (ids.ID, error) {
	return parse(batchPrefix, s, "There is no batch %s.", "batch_not_found", "batch_id")
}

const maxShownID = 64

func parse(prefix, s, message, code, param string) (id ids.ID, err error) {
	text, ok := strings.CutPrefix(s, prefix)
	if ok && len(text) == hex.EncodedLen(len(id)) {
		if _, err := hex.Decode(id[:], []byte(text)); err == nil && id != ids.Nil {
			return id, nil
		}
	}
	return ids.Nil, fault.New(fault.NotFound, message, strings.ToValidUTF8(s[:min(len(s), maxShownID)], "")).WithCode(code).WithParam(param)
}

// requestID is the id of a line's request: the same whoever runs it, for one attempt. It is a UUIDv7 of the attempt's start,
// as the usage log wants.
func requestID(batch ids.ID, line, attempt int32, started time.Time) ids.ID {
	var text [24]byte
	copy(text[:], batch[:])
	binary.BigEndian.PutUint32(text[16:], uint32(line))
	binary.BigEndian.PutUint32(text[20:], uint32(attempt))
	sum := sha256.Sum256(text[:])
	id := ids.Floor(started)
	copy(id[6:], sum[:])
	id[6] = id[6]&0x0f | 0x70 // version 7
	id[8] = id[8]&0x3f | 0x80 // variant of RFC 9562
	return id
}
