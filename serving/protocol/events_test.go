package protocol

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// readAll gives the events of a stream that comes in reads as r gives them.
func readEvents(r io.Reader) (all []string, err error) {
	var s Events
	for {
		for data := s.Next(); data != nil; data = s.Next() {
			all = append(all, string(data))
		}
		if err != nil {
			return all, err
		}
		err = s.Fill(r)
	}
}

func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name, stream string
		want         []string
	}{
		{"plain", "data: a\n\ndata: b\n\n", []string{"a", "b"}},
		{"no space", "data:a\n\n", []string{"a"}},
		{"two spaces", "data:  a\n\n", []string{" a"}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		{"mixed line ends", "data: a\r\n\ndata: b\n\r\n", []string{"a", "b"}},
		{"comments", ": hello\n\n: and\ndata: a\n: more\n\n", []string{"a"}},
		{"other fields", "event: x\nid: 7\nretry: 3\ndata: a\n\nevent: y\n\n", []string{"a"}},
		{"many lines", "data: a\ndata: b\ndata: c\n\n", []string{"a\nb\nc"}},
		{"empty lines before", "\n\n\r\n\ndata: a\n\n\n\n\ndata: b\n\n", []string{"a", "b"}},
		{"empty data", "data:\n\ndata: a\n\n", []string{"", "a"}},
		{"unterminated", "data: a\n\ndata: [DONE]", []string{"a", "[DONE]"}},
		{"unterminated line", "data: a\n\ndata: [DONE]\n", []string{"a", "[DONE]"}},
		{"unterminated CRLF", "data: a\r\n", []string{"a"}},
		{"nothing", "", nil},
		{"a byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"a"}},
		{"no byte order mark", "\xef\xbb: x\ndata: a\n\n", []string{"a"}},
		{"large", "data: " + strings.Repeat("x", 200_000) + "\n\ndata: b\n\n", []string{strings.Repeat("x", 200_000), "b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{"whole": strings.NewReader(tt.stream), "halves": iotest.HalfReader(strings.NewReader(tt.stream)),
				"bytes": iotest.OneByteReader(strings.NewReader(tt.stream)), "with error": iotest.DataErrReader(strings.NewReader(tt.stream))} {
				got, err := readEvents(r)
				if err != io.EOF || !slices.Equal(got, tt.want) {
					t.Errorf("%s: %.100q, %v; want %.100q", name, got, err, tt.want)
				}
			}
		})
	}
}

// However a stream is cut into reads, its events are the same.
func TestEventsDoNotDependOnReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"data: x", "data: {\"a\":\"é€😀\"}", "data:", ": c", "event: e", "", "", ""})
		end := rapid.SampledFrom([]string{"\n", "\n", "\r\n"})
		var b strings.Builder
		for range rapid.IntRange(0, 30).Draw(t, "lines") {
			b.WriteString(line.Draw(t, "line") + end.Draw(t, "end"))
		}
		stream := b.String()
		want, _ := readEvents(strings.NewReader(stream))
		got, _ := readEvents(&pieces{text: stream, sizes: rapid.SliceOfN(rapid.IntRange(1, 20), 1, 50).Draw(t, "sizes")})
		if !slices.Equal(got, want) {
			t.Fatalf("%q:\n%q\n%q", stream, got, want)
		}
	})
}

// pieces gives text in reads of given sizes, over and over.
type pieces struct {
	text  string
	sizes []int
	n     int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(len(p.text), p.sizes[p.n%len(p.sizes)])])
	p.text, p.n = p.text[n:], p.n+1
	return n, nil
}

func TestAnEndlessEventIsRefused(t *testing.T) {
	_, err := readEvents(io.MultiReader(strings.NewReader("data: "), &endless{}))
	if !errors.Is(err, ErrEventTooLarge) {
		t.Fatal(err)
	}
}

type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	if e.read += len(b); e.read > 8*MaxEventBytes {
		return 0, errors.New("read on and on")
	}
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// The scanner agrees with a plain reading of the standard, whatever bytes come.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "data: a\r\n\r\n", "\r\n\r\ndata:a\n", "data: a\ndata: b\n\n: x\n\n", "data\n\n"} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, stream []byte, step int) {
		got, err := readEvents(&pieces{text: string(stream), sizes: []int{max(step%64, 1)}})
		if err != io.EOF {
			t.Fatal(err)
		}
		if want := plainEvents(stream); !slices.Equal(got, want) {
			t.Fatalf("%q:\n%q\n%q", stream, got, want)
		}
	})
}

func plainEvents(stream []byte) (all []string) {
	var data []string
	flush := func() {
		if data != nil {
			all = append(all, strings.Join(data, "\n"))
		}
		data = nil
	}
	for line := range bytes.SplitSeq(stream, []byte{'\n'}) {
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) == 0 {
			flush()
		} else if v, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, string(bytes.TrimPrefix(v, []byte(" "))))
		}
	}
	flush()
	return all
}
