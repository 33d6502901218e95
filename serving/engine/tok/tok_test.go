package tok_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"millrace/internal/fault"
	"millrace/serving/engine/tok"
)

func pieces(text string) (all []string) {
	for len(text) > 0 {
		n := tok.Piece([]byte(text))
		all, text = append(all, text[:n]), text[n:]
	}
	return all
}

func TestPieces(t *testing.T) {
	for text, want := range map[string]string{
		"The mill":          "The| mil|l",
		"a  b":              "a|  |b",
		"x=1;\n\tgo()":      "x|=|1|;|\n\t|go|()",
		"größe über":        "grö|ße| üb|er",
		"解说":                "解|说",
		"😀 ok":              "😀| ok",
		"counts his 12345.": "coun|ts| his| 123|45|.",
		" 解":                " 解",
		" 😀":                " |😀",
	} {
		if got := strings.Join(pieces(text), "|"); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func anyText() *rapid.Generator[string] {
	words := rapid.SampledFrom([]string{" the", "The", " ", "  ", "\n", "12", "7", "é", "解", "😀", ".", "()", "\xff", "grain", " a"})
	return rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "words") {
			return strings.Join(rapid.SliceOf(words).Draw(t, "w"), "")
		}
		return rapid.String().Draw(t, "s")
	})
}

func TestPiecesJoinAndStayWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		all := pieces(text)
		if strings.Join(all, "") != text {
			t.Fatalf("%q: %q", text, all)
		}
		for _, p := range all {
			if len(p) > tok.MaxPieceBytes || utf8.ValidString(text) && !utf8.ValidString(p) {
				t.Fatalf("%q has the piece %q", text, p)
			}
		}
		if len(tok.Append(nil, []byte(text))) != len(all) || tok.Count([]byte(text)) != len(all) {
			t.Fatal("ids and pieces differ in number")
		}
	})
}

// An answer that is cut at a token, and sent back in the next turn, must have the same tokens.
func TestCuttingAtABorderKeepsThePiecesBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := pieces(anyText().Draw(t, "text"))
		n := rapid.IntRange(0, len(all)).Draw(t, "n")
		if got := pieces(strings.Join(all[:n], "")); !slices.Equal(got, all[:n]) {
			t.Fatalf("%q cut after %d: %q", all, n, got)
		}
	})
}

func chat(t *testing.T, v any) []uint32 {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.ApplyChat(body)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

type msg map[string]any

func TestChatTemplate(t *testing.T) {
	got := chat(t, msg{"messages": []msg{{"role": "system", "content": "hi"}, {"role": "user", "content": []msg{
		{"type": "text", "text": "so\n"}, {"type": "image_url", "image_url": msg{"url": "data:…"}}}}}})
	want := []uint32{tok.Begin, tok.System, tok.ID([]byte("hi")), tok.End, tok.User, tok.ID([]byte("so")), tok.ID([]byte("\n"))}
	for range tok.MediaPatches {
		want = append(want, tok.Media)
	}
	want = append(want, tok.End, tok.Assistant)
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestTheNextTurnExtendsThePrompt(t *testing.T) {
	question := msg{"role": "user", "content": "What turns the wheel?"}
	first := chat(t, msg{"messages": []msg{question}})
	answer := "The river turns it.\nAlways."
	first = append(tok.Append(first, []byte(answer)), tok.End)
	second := chat(t, msg{"messages": []msg{question, {"role": "assistant", "content": answer}, {"role": "user", "content": "Why?"}}})
	if len(second) <= len(first) || !slices.Equal(second[:len(first)], first) {
		t.Errorf("the second prompt does not start with the first turn:\n%v\n%v", first, second)
	}
}

func TestToolsAndCallsChangeThePrompt(t *testing.T) {
	user := msg{"role": "user", "content": "x"}
	call := func(args string) msg {
		return msg{"role": "assistant", "content": nil, "tool_calls": []msg{{"function": msg{"name": "f", "arguments": args}}}}
	}
	plain := chat(t, msg{"messages": []msg{user}})
	tools := chat(t, msg{"messages": []msg{user}, "tools": []msg{{"type": "function"}}})
	one, two := chat(t, msg{"messages": []msg{user, call("{}")}}), chat(t, msg{"messages": []msg{user, call("[]")}})
	if slices.Equal(plain, tools) || slices.Equal(one, two) || slices.Contains(plain, tok.Tools) || !slices.Contains(one, tok.Call) {
		t.Error("tools or calls are not in the prompt")
	}
}

func TestBadChatsAreFaults(t *testing.T) {
	for _, body := range []string{`{}`, `{"messages":"x"}`, `{"messages":[1]}`, `{"messages":[{"role":"pope"}]}`, `{"messages":[{}]}`, `[`} {
		if _, err := tok.ApplyChat([]byte(body)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func FuzzApplyChat(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a\u00e9"}]}],"tools":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ids, err := tok.ApplyChat(body)
		if err == nil && (ids[0] != tok.Begin || ids[len(ids)-1] != tok.Assistant) {
			t.Fatalf("%v", ids)
		}
	})
}

func BenchmarkApplyChat(b *testing.B) {
	body, err := json.Marshal(msg{"messages": []msg{{"role": "user", "content": strings.Repeat("The river flows past the old mill.\n", 1000)}}})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tok.ApplyChat(body); err != nil {
			b.Fatal(err)
		}
	}
}
