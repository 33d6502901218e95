// Command go asks Millrace what customers ask, with the official clients, and prints what they saw: one JSON object per
// scenario.
//
// usage: go chat|responses|messages ASK, where ASK is a JSON object (see sdk_test.go)
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// ask is whom to ask, and what.
type ask struct {
	URL     string                    `json:"url"`
	Key     string                    `json:"key"`
	PoorKey string                    `json:"poor_key"`
	Model   string                    `json:"model"`
	Small   string                    `json:"small"`
	Broken  string                    `json:"broken"`
	Leave   string                    `json:"leave"`
	Story   string                    `json:"story"`
	TooLong string                    `json:"too_long"`
	Image   string                    `json:"image"`
	Tools   map[string]map[string]any `json:"tools"`
	Only    []string                  `json:"only"`
}

// answer is what was seen of an answer.
type answer struct {
	Request   string `json:"request"`
	Text      string `json:"text"`
	Reasoning string `json:"reasoning"`
	Finish    string `json:"finish"`
	Pieces    int    `json:"pieces,omitempty"`
	Calls     []call `json:"calls"`
	Usage     struct {
		Prompt     int64 `json:"prompt"`
		Completion int64 `json:"completion"`
		Cached     int64 `json:"cached"`
		Reasoning  int64 `json:"reasoning"`
	} `json:"usage"`
}

type call struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// failure is what was made of a refusal.
type failure struct {
	Class   string `json:"class"`
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Type    string `json:"type"`
	Param   string `json:"param"`
	Message string `json:"message"`
	Request string `json:"request"`
	Tries   int    `json:"tries"`
}

// saw is what was seen in a scenario.
type saw struct {
	Scenario   string `json:"scenario"`
	Unexpected string `json:"unexpected,omitempty"`
	answer
	Turns    []answer           `json:"turns,omitempty"`
	Parsed   json.RawMessage    `json:"parsed,omitempty"`
	Sealed   *bool              `json:"sealed,omitempty"`
	Failures map[string]failure `json:"failures,omitempty"`
	Models   []string           `json:"models,omitempty"`
	Model    string             `json:"model,omitempty"`
	Counted  int64              `json:"counted,omitempty"`
	First    string             `json:"first,omitempty"`
	Same     bool               `json:"same,omitempty"`
	Items    []string           `json:"items,omitempty"`
	Gone     bool               `json:"gone,omitempty"`
}

// scenario is one, by its name.
type scenario struct {
	name string
	play func(ask) (saw, error)
}

// forecast is the schema of structured answers.
var forecast = map[string]any{
	"type": "object", "additionalProperties": false, "required": []string{"city", "days"},
	"properties": map[string]any{"city": map[string]any{"type": "string"}, "days": map[string]any{"type": "integer"}},
}

func main() {
	scenarios := map[string][]scenario{"chat": chatScenarios, "responses": responsesScenarios, "messages": messagesScenarios}[os.Args[1]]
	var a ask
	if err := json.Unmarshal([]byte(os.Args[2]), &a); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, s := range scenarios {
		if len(a.Only) > 0 && !slices.Contains(a.Only, s.name) {
			continue
		}
		got, err := s.play(a)
		if err != nil {
			got = saw{Unexpected: err.Error()}
		}
		got.Scenario = s.name
		if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// turn is a way to get an answer: whole, or streamed. raw is the client's own.
type turn[P, R any] func(a ask, p P) (got answer, raw R, err error)

// once is a scenario of one answer.
func once[P, R any](t turn[P, R], params func(ask) P) func(ask) (saw, error) {
	return func(a ask) (saw, error) {
		got, _, err := t(a, params(a))
		return saw{answer: got}, err
	}
}

// shaped is a scenario of an answer that is JSON.
func shaped[P, R any](t turn[P, R], params func(ask) P) func(ask) (saw, error) {
	return func(a ask) (saw, error) {
		got, _, err := t(a, params(a))
		return saw{answer: got, Parsed: json.RawMessage(got.Text)}, err
	}
}

// breaks is a scenario of an answer that must fail in mid-stream.
func breaks[P, R any](t turn[P, R], params func(ask) P) func(ask) (saw, error) {
	return func(a ask) (saw, error) {
		_, _, err := t(a, params(a))
		if err == nil {
			return saw{}, nil
		}
		return saw{Failures: map[string]failure{"stream": {Class: fmt.Sprintf("%T", err), Message: err.Error()}}}, nil
	}
}

// toolNames gives the tools in one order.
func (a ask) toolNames() (names []string) {
	for name := range a.Tools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
