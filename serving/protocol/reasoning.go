package protocol

import (
	"encoding/base64"

	"millrace/internal/ids"
)

// Sealer encrypts what clients keep for us, bound to a context: *seal.Master.
type Sealer interface {
	Seal(plain []byte, context string) []byte
	Open(sealed []byte, context string) ([]byte, error)
}

// ReasoningSeal makes an answer's reasoning something that its client can keep and only its organization can give back:
// Messages' signature and Responses' encrypted_content. Every gateway of the installation opens what another one sealed.
type ReasoningSeal struct {
	Sealer Sealer
	Org    ids.ID
}

// sealMark begins every seal: what begins otherwise is some other service's and is not looked into.
const sealMark = "mr1."

func (s ReasoningSeal) context() string { return "reasoning/" + ids.Format(ids.Org, s.Org) }

// Append appends the sealed form of text, the inside of a JSON string. What it appends is such an inside too.
func (s ReasoningSeal) Append(dst, text []byte) []byte {
	return base64.RawURLEncoding.AppendEncode(append(dst, sealMark...), s.Sealer.Seal(text, s.context()))
}

// Open gives the text that was sealed; nil for what is foreign, broken or another organization's: why is nobody's to know.
func (s ReasoningSeal) Open(sealed []byte) []byte {
	if len(sealed) < len(sealMark) || string(sealed[:len(sealMark)]) != sealMark {
		return nil
	}
	raw, err := base64.RawURLEncoding.AppendDecode(nil, sealed[len(sealMark):])
	if err != nil {
		return nil
	}
	text, err := s.Sealer.Open(raw, s.context())
	if err != nil || !cleanText(text) {
		return nil
	}
	return text
}
