package sim

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"

	"github.com/cespare/xxhash/v2"

	"millrace/serving/engine/scan"
)

// Limits of embeddings.
const (
	usualDimensions = 64
	maxDimensions   = 4096
	maxInputs       = 2048
)

// serveEmbeddings answers with vectors of length 1 that depend on the text alone: equal texts, equal vectors.
func (e *Engine) serveEmbeddings(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	if err != nil {
		e.writeError(w, err)
		return
	}
	var q struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Encoding   string          `json:"encoding_format"`
		Dimensions int             `json:"dimensions"`
	}
	if err := json.Unmarshal(body, &q); err != nil || len(q.Input) == 0 {
		e.writeError(w, invalid("input", "An input is required."))
		return
	}
	texts, err := inputs(q.Input)
	if err != nil {
		e.writeError(w, err)
		return
	}
	if q.Dimensions == 0 {
		q.Dimensions = usualDimensions
	}
	if q.Dimensions < 1 || q.Dimensions > maxDimensions {
		e.writeError(w, invalid("dimensions", "dimensions must be at most %d.", maxDimensions))
		return
	}
	tokens, data := 0, make([]map[string]any, len(texts))
	for i, t := range texts {
		tokens += len(t)
		data[i] = map[string]any{"object": "embedding", "index": i, "embedding": encoded(vector(t, q.Dimensions), q.Encoding)}
	}
	writeJSON(w, http.StatusOK, map[string]any{"id": "embd-" + e.newID(), "object": "list", "created": e.clock.Now().Unix(), "model": e.cfg.Model,
		"data": data, "usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}})
}

func inputs(v []byte) (all [][]uint32, err error) {
	if e := scan.Array(v); e.Next() && (e.Value[0] == '"' || e.Value[0] == '[') {
		for e := scan.Array(v); e.Next(); {
			one, err := prompts(e.Value)
			if err != nil || len(one) != 1 || len(all) == maxInputs {
				return nil, invalid("input", "input must be text or token ids, at most %d of them.", maxInputs)
			}
			all = append(all, one[0])
		}
		return all, nil
	}
	return prompts(v)
}

func vector(tokens []uint32, n int) []float32 {
	var seed []byte
	for _, t := range tokens {
		seed = binary.LittleEndian.AppendUint32(seed, t)
	}
	h, sum, v := xxhash.Sum64(seed), 0.0, make([]float32, n)
	for i := range v {
		h ^= h << 13 // xorshift
		h ^= h >> 7
		h ^= h << 17
		v[i] = float32(int64(h)) / math.MaxInt64
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

func encoded(v []float32, encoding string) any {
	if encoding != "base64" {
		return v
	}
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(b)
}
