package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

type chatParams = openai.ChatCompletionNewParams

func openaiClient(a ask, more ...option.RequestOption) *openai.Client {
	c := openai.NewClient(append([]option.RequestOption{option.WithBaseURL(a.URL + "/v1"), option.WithAPIKey(a.Key)}, more...)...)
	return &c
}

func chatSeen(c openai.ChatCompletion, resp *http.Response) (got answer, err error) {
	if len(c.Choices) != 1 {
		return got, fmt.Errorf("%d choices", len(c.Choices))
	}
	m := c.Choices[0].Message
	got.Request, got.Text, got.Finish = resp.Header.Get("X-Request-Id"), m.Content, c.Choices[0].FinishReason
	if f, ok := m.JSON.ExtraFields["reasoning_content"]; ok {
		if err := json.Unmarshal([]byte(f.Raw()), &got.Reasoning); err != nil {
			return got, err
		}
	}
	for _, t := range m.ToolCalls {
		got.Calls = append(got.Calls, call{t.ID, t.Function.Name, t.Function.Arguments})
	}
	u := c.Usage
	got.Usage.Prompt, got.Usage.Completion = u.PromptTokens, u.CompletionTokens
	got.Usage.Cached, got.Usage.Reasoning = u.PromptTokensDetails.CachedTokens, u.CompletionTokensDetails.ReasoningTokens
	return got, nil
}

func chatWhole(a ask, p chatParams) (got answer, raw openai.ChatCompletion, err error) {
	var resp *http.Response
	c, err := openaiClient(a).Chat.Completions.New(context.Background(), a.chat(p), option.WithResponseInto(&resp))
	if err != nil {
		return got, raw, err
	}
	got, err = chatSeen(*c, resp)
	return got, *c, err
}

// chatStream lets the client put the answer together. It knows no reasoning, which is read beside it.
func chatStream(a ask, p chatParams) (got answer, raw openai.ChatCompletion, err error) {
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	var resp *http.Response
	stream := openaiClient(a).Chat.Completions.NewStreaming(context.Background(), a.chat(p), option.WithResponseInto(&resp))
	defer stream.Close()
	var acc openai.ChatCompletionAccumulator
	pieces, thoughts := 0, ""
	for stream.Next() {
		chunk := stream.Current()
		if !acc.AddChunk(chunk) {
			return got, raw, fmt.Errorf("the accumulator refuses %s", chunk.RawJSON())
		}
		for _, c := range chunk.Choices {
			var thought string
			if f, ok := c.Delta.JSON.ExtraFields["reasoning_content"]; ok {
				if err := json.Unmarshal([]byte(f.Raw()), &thought); err != nil {
					return got, raw, err
				}
			}
			thoughts += thought
			if c.Delta.Content != "" || len(c.Delta.ToolCalls) > 0 || thought != "" {
				pieces++
			}
		}
	}
	if err := stream.Err(); err != nil {
		return got, raw, err
	}
	got, err = chatSeen(acc.ChatCompletion, resp)
	got.Pieces, got.Reasoning = pieces, thoughts
	return got, acc.ChatCompletion, err
}

func (a ask) chat(p chatParams) chatParams {
	if p.Model == "" {
		p.Model = a.Model
	}
	if p.Messages == nil {
		p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(a.Story)}
	}
	return p
}

func (a ask) chatTools() (tools []openai.ChatCompletionToolUnionParam) {
	for _, name := range a.toolNames() {
		tools = append(tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: name, Parameters: a.Tools[name]}))
	}
	return tools
}

// chatLoop is two turns: the model calls both functions, and gets their results.
func chatLoop(t turn[chatParams, openai.ChatCompletion]) func(ask) (saw, error) {
	return func(a ask) (saw, error) {
		messages := []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Please call get_weather and get_time.")}
		first, raw, err := t(a, chatParams{Messages: messages, Tools: a.chatTools()})
		if err != nil {
			return saw{}, err
		}
		messages = append(messages, raw.Choices[0].Message.ToParam())
		for _, c := range first.Calls {
			messages = append(messages, openai.ToolMessage("sunny", c.ID))
		}
		second, _, err := t(a, chatParams{Messages: messages, Tools: a.chatTools()})
		return saw{Turns: []answer{first, second}}, err
	}
}

// chatLeave goes in the middle of an answer.
func chatLeave(a ask) (saw, error) {
	var resp *http.Response
	stream := openaiClient(a, option.WithBaseURL(a.Leave+"/v1")).Chat.Completions.NewStreaming(context.Background(),
		a.chat(chatParams{MaxTokens: openai.Int(1500)}), option.WithJSONSet("ignore_eos", true), option.WithResponseInto(&resp))
	defer stream.Close()
	var got saw
	for got.Pieces < 25 && stream.Next() {
		if c := stream.Current().Choices; len(c) > 0 && c[0].Delta.Content != "" {
			got.Pieces++
		}
	}
	if err := stream.Err(); err != nil {
		return got, err
	}
	got.Request = resp.Header.Get("X-Request-Id")
	return got, nil
}

func openaiExplain(err error) (failure, error) {
	var e *openai.Error
	if !errors.As(err, &e) {
		return failure{}, err
	}
	return failure{Status: e.StatusCode, Code: e.Code, Type: e.Type, Param: e.Param, Message: e.Message, Request: e.Response.Header.Get("X-Request-Id")}, nil
}

func chatErrors(a ask) (saw, error) {
	try := func(p chatParams, more ...option.RequestOption) func(*http.Client) error {
		return func(h *http.Client) error {
			p.MaxTokens = openai.Int(60)
			_, err := openaiClient(a, append(more, option.WithHTTPClient(h))...).Chat.Completions.New(context.Background(), a.chat(p))
			return err
		}
	}
	long := chatParams{Model: a.Small, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(a.TooLong)}, MaxTokens: openai.Int(60)}
	streamed := func(h *http.Client) error {
		stream := openaiClient(a, option.WithHTTPClient(h)).Chat.Completions.NewStreaming(context.Background(), long)
		defer stream.Close()
		for stream.Next() {
		}
		return stream.Err()
	}
	return failures([]refusal{
		{"bad_key", try(chatParams{}, option.WithAPIKey("mr_live_nobody"))},
		{"no_model", try(chatParams{Model: "acme/none"})},
		{"no_credit", try(chatParams{}, option.WithAPIKey(a.PoorKey))},
		{"overflow", try(long)},
		{"overflow_stream", streamed},
		{"bad_value", try(chatParams{Temperature: openai.Float(9)})},
	}, openaiExplain)
}

func chatModels(a ask) (got saw, err error) {
	c := openaiClient(a)
	all := c.Models.ListAutoPaging(context.Background())
	for all.Next() {
		got.Models = append(got.Models, all.Current().ID)
	}
	if err := all.Err(); err != nil {
		return got, err
	}
	m, err := c.Models.Get(context.Background(), a.Model)
	if err != nil {
		return got, err
	}
	got.Model = m.ID
	return got, nil
}

func chatPlain(ask) chatParams  { return chatParams{} }
func chatLength(ask) chatParams { return chatParams{MaxTokens: openai.Int(20)} }
func chatStop(ask) chatParams {
	return chatParams{Stop: openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"question"}}}
}
func chatThink(ask) chatParams    { return chatParams{ReasoningEffort: shared.ReasoningEffortLow} }
func chatBroken(a ask) chatParams { return chatParams{Model: a.Broken} }
func chatForced(a ask) chatParams {
	return chatParams{Tools: a.chatTools(), ToolChoice: openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: param.NewOpt("required")}}
}
func chatShape(ask) chatParams {
	return chatParams{ResponseFormat: openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "forecast", Strict: openai.Bool(true), Schema: forecast}}}}
}
func chatPicture(a ask) chatParams {
	return chatParams{MaxTokens: openai.Int(20), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
		openai.TextContentPart(a.Story), openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: a.Image})})}}
}

var chatScenarios = []scenario{
	{"whole", once(chatWhole, chatPlain)}, {"stream", once(chatStream, chatPlain)},
	{"length", once(chatWhole, chatLength)}, {"length stream", once(chatStream, chatLength)},
	{"stop", once(chatWhole, chatStop)}, {"stop stream", once(chatStream, chatStop)},
	{"think", once(chatWhole, chatThink)}, {"think stream", once(chatStream, chatThink)},
	{"tools", chatLoop(chatWhole)}, {"tools stream", chatLoop(chatStream)},
	{"forced", once(chatWhole, chatForced)}, {"forced stream", once(chatStream, chatForced)},
	{"structured", shaped(chatWhole, chatShape)}, {"structured stream", shaped(chatStream, chatShape)},
	{"image", once(chatWhole, chatPicture)}, {"image stream", once(chatStream, chatPicture)},
	{"errors", chatErrors}, {"broken", breaks(chatStream, chatBroken)}, {"leave", chatLeave}, {"models", chatModels},
}
