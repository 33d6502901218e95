package webtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// playKey is the only bearer key of the fixture's endpoint.
const playKey = "mr_play_fixture"

// Words are what the fixture's endpoint answers.
const Words = "Hello from the old mill."

// chat answers the public endpoint's shape, whole or streamed, so that the playground can be tried without an engine.
// The message "never end" streams until the client leaves.
func (f *Fixture) chat(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	err := json.NewDecoder(r.Body).Decode(&ask)
	switch {
	case r.Header.Get("Authorization") != "Bearer "+playKey:
		http.Error(w, `{"error":{"message":"The API key is not valid.","code":"invalid_api_key"}}`, http.StatusUnauthorized)
	case err != nil || len(ask.Messages) == 0:
		http.Error(w, `{"error":{"message":"The body is not a chat request."}}`, http.StatusBadRequest)
	case ask.Messages[len(ask.Messages)-1].Content == "refuse":
		http.Error(w, `{"error":{"message":"The monthly cap of this key is used up.","code":"insufficient_quota"}}`, http.StatusPaymentRequired)
	case ask.Stream:
		stream(w, r, ask.Messages[len(ask.Messages)-1].Content == "never end")
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":%q}}],"usage":%s}`, Words, fixtureUsage)
	}
}

const fixtureUsage = `{"prompt_tokens":1000,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":400}}`

func stream(w http.ResponseWriter, r *http.Request, endless bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(data string) {
		fmt.Fprintf(w, "data: %s\n\n", data)
		w.(http.Flusher).Flush()
	}
	for i, word := range strings.SplitAfter(Words, " ") {
		send(fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}],"n":%d}`, word, i))
	}
	if endless {
		<-r.Context().Done()
		return
	}
	send(`{"choices":[],"usage":` + fixtureUsage + `}`)
	send("[DONE]")
}
