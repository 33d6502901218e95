// Package tok is the tokenizer of the simulated engine: pure, deterministic, without a vocabulary file. Gateway and
// engine both use it, so a router has exact token ids without asking.
//
// It owns how text becomes pieces and pieces become ids, and the chat template of the simulated models. It is no model's
// real tokenizer. Invariants: the pieces of a text join to that text; a piece is at most MaxPieceBytes and breaks no
// UTF-8 sequence; cutting a text at a piece's border changes no piece before the border, so an answer's tokens are the
// tokens that the next turn's prompt has for it.
package tok

import (
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// MaxPieceBytes bounds a piece: one rune of four bytes fits.
const MaxPieceBytes = 4

// Marks of the chat template. They are ids that no text has.
const (
	Begin     uint32 = 1 // starts a prompt
	End       uint32 = 2 // ends a message; the model's end of answer
	System    uint32 = 3
	User      uint32 = 4
	Assistant uint32 = 5
	Tool      uint32 = 6
	Tools     uint32 = 7 // the tools' definitions follow
	Call      uint32 = 8 // a tool call follows
	Media     uint32 = 9 // one patch of an image or other media
	firstText uint32 = 256
)

// idSpace keeps ids below 2^31, so that engines and routers may hold them in signed integers.
const idSpace = 1<<31 - firstText

// ID is the id of one piece.
func ID(piece []byte) uint32 { return firstText + uint32(xxhash.Sum64(piece)%uint64(idSpace)) }

// Append appends the ids of text to dst.
func Append(dst []uint32, text []byte) []uint32 {
	for len(text) > 0 {
		n := Piece(text)
		dst = append(dst, ID(text[:n]))
		text = text[n:]
	}
	return dst
}

// Count is the number of pieces of text.
func Count(text []byte) (n int) {
	for len(text) > 0 {
		text = text[Piece(text):]
		n++
	}
	return n
}

// Piece is the length in bytes of the first piece of text, which must not be empty. A piece is a run of runes of one
// class; a single space joins the word that follows it.
func Piece(text []byte) int {
	n, class := runeAt(text)
	if class == space && len(text) > 1 && text[0] == ' ' {
		if size, next := runeAt(text[1:]); (next == letter || next == digit) && 1+size <= MaxPieceBytes {
			n, class = 1+size, next
		}
	}
	for n < len(text) {
		size, next := runeAt(text[n:])
		if next != class || n+size > MaxPieceBytes {
			break
		}
		n += size
	}
	return n
}

// class sorts runes; runs of one class make pieces.
type class uint8

const (
	letter class = iota
	digit
	space
	mark
	broken // bytes that are no UTF-8: one piece each with what follows of them
)

func runeAt(text []byte) (int, class) {
	c := text[0]
	switch {
	case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		return 1, letter
	case c == ' ' || c == '\n' || c == '\t' || c == '\r':
		return 1, space
	case '0' <= c && c <= '9':
		return 1, digit
	case c < utf8.RuneSelf:
		return 1, mark
	}
	r, size := utf8.DecodeRune(text)
	switch {
	case r == utf8.RuneError && size <= 1:
		return 1, broken
	case unicode.IsLetter(r) || unicode.IsMark(r):
		return size, letter
	case unicode.IsDigit(r):
		return size, digit
	case unicode.IsSpace(r):
		return size, space
	}
	return size, mark
}
