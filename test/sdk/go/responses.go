package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

type respParams = responses.ResponseNewParams

func respSeen(r responses.Response, resp *http.Response) (got answer) {
	if resp != nil {
		got.Request = resp.Header.Get("X-Request-Id")
	}
	got.Text, got.Finish = r.OutputText(), string(r.Status)
	if reason := r.IncompleteDetails.Reason; reason != "" {
		got.Finish += ": " + reason
	}
	for _, item := range r.Output {
		switch item.Type {
		case "reasoning":
			for _, s := range item.AsReasoning().Summary {
				got.Reasoning += s.Text
			}
		case "function_call":
			c := item.AsFunctionCall()
			got.Calls = append(got.Calls, call{c.CallID, c.Name, c.Arguments})
		}
	}
	u := r.Usage
	got.Usage.Prompt, got.Usage.Completion = u.InputTokens, u.OutputTokens
	got.Usage.Cached, got.Usage.Reasoning = u.InputTokensDetails.CachedTokens, u.OutputTokensDetails.ReasoningTokens
	return got
}

func respWhole(a ask, p respParams) (got answer, raw responses.Response, err error) {
	var resp *http.Response
	c := openaiClient(a)
	r, err := c.Responses.New(context.Background(), a.resp(p), option.WithResponseInto(&resp))
	if err != nil {
		return got, raw, err
	}
	return respSeen(*r, resp), *r, nil
}

// respStream takes the answer from the last event, and holds the pieces against it.
func respStream(a ask, p respParams) (got answer, raw responses.Response, err error) {
	var resp *http.Response
	c := openaiClient(a)
	stream := c.Responses.NewStreaming(context.Background(), a.resp(p), option.WithResponseInto(&resp))
	defer stream.Close()
	var text, arguments strings.Builder
	pieces := 0
	for stream.Next() {
		switch e := stream.Current(); e.Type {
		case "response.output_text.delta":
			text.WriteString(e.Delta)
			pieces++
		case "response.function_call_arguments.delta":
			arguments.WriteString(e.Delta)
			pieces++
		case "response.reasoning_summary_text.delta":
			pieces++
		case "response.completed", "response.incomplete", "response.failed":
			raw = e.Response
		}
	}
	if err := stream.Err(); err != nil {
		return got, raw, err
	}
	got = respSeen(raw, resp)
	got.Pieces = pieces
	whole := ""
	for _, c := range got.Calls {
		whole += c.Arguments
	}
	if text.String() != got.Text || arguments.String() != whole {
		return got, raw, fmt.Errorf("pieces %q %q, whole %q %q", text.String(), arguments.String(), got.Text, whole)
	}
	return got, raw, nil
}

func respText(s string) responses.ResponseNewParamsInputUnion {
	return responses.ResponseNewParamsInputUnion{OfString: openai.String(s)}
}

func respItems(items ...responses.ResponseInputItemUnionParam) responses.ResponseNewParamsInputUnion {
	return responses.ResponseNewParamsInputUnion{OfInputItemList: items}
}

func (a ask) resp(p respParams) respParams {
	if p.Model == "" {
		p.Model = a.Model
	}
	if p.Input.OfString.Value == "" && p.Input.OfInputItemList == nil {
		p.Input = respText(a.Story)
	}
	return p
}

func (a ask) respTools() (tools []responses.ToolUnionParam) {
	for _, name := range a.toolNames() {
		tools = append(tools, responses.ToolParamOfFunction(name, a.Tools[name], false))
	}
	return tools
}

// respHistory gives a response's output back as it came.
func respHistory(question string, r responses.Response) []responses.ResponseInputItemUnionParam {
	items := []responses.ResponseInputItemUnionParam{responses.ResponseInputItemParamOfMessage(question, responses.EasyInputMessageRoleUser)}
	for _, item := range r.Output {
		items = append(items, param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(item.RawJSON())))
	}
	return items
}

// respLoop is two turns: the model calls both functions, and gets their results. Either the client keeps the conversation,
// or Millrace.
func respLoop(t turn[respParams, responses.Response], kept bool) func(ask) (saw, error) {
	return func(a ask) (saw, error) {
		const question = "Please call get_weather and get_time."
		first, raw, err := t(a, respParams{Input: respText(question), Tools: a.respTools()})
		if err != nil {
			return saw{}, err
		}
		next := respParams{Tools: a.respTools()}
		var items []responses.ResponseInputItemUnionParam
		if kept {
			next.PreviousResponseID = openai.String(raw.ID)
		} else {
			items = respHistory(question, raw)
		}
		for _, c := range first.Calls {
			output := responses.ResponseInputItemParamOfFunctionCallOutput("sunny")
			output.OfFunctionCallOutput.CallID = openai.String(c.ID)
			items = append(items, output)
		}
		next.Input = respItems(items...)
		second, _, err := t(a, next)
		return saw{Turns: []answer{first, second}}, err
	}
}

// respSealed is reasoning that the client keeps, sealed, and gives back.
func respSealed(a ask) (saw, error) {
	first, raw, err := respWhole(a, respParams{Reasoning: shared.ReasoningParam{Effort: shared.ReasoningEffortLow}, Store: openai.Bool(false),
		Include: []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}})
	if err != nil {
		return saw{}, err
	}
	items := append(respHistory(a.Story, raw), responses.ResponseInputItemParamOfMessage("Go on.", responses.EasyInputMessageRoleUser))
	second, _, err := respWhole(a, respParams{Input: respItems(items...), Store: openai.Bool(false)})
	sealed := len(raw.Output) > 0 && raw.Output[0].AsReasoning().EncryptedContent != ""
	return saw{Turns: []answer{first, second}, Sealed: &sealed}, err
}

// respKept is a response that is kept, listed, and removed.
func respKept(a ask) (got saw, err error) {
	ctx, c := context.Background(), openaiClient(a)
	made, err := c.Responses.New(ctx, a.resp(respParams{}))
	if err != nil {
		return got, err
	}
	again, err := c.Responses.Get(ctx, made.ID, responses.ResponseGetParams{})
	if err != nil {
		return got, err
	}
	got.Same = again.OutputText() == made.OutputText()
	items := c.Responses.InputItems.ListAutoPaging(ctx, made.ID, responses.InputItemListParams{})
	for items.Next() {
		got.Items = append(got.Items, items.Current().AsMessage().Content[0].Text)
	}
	if err := items.Err(); err != nil {
		return got, err
	}
	if err := c.Responses.Delete(ctx, made.ID); err != nil {
		return got, err
	}
	_, err = c.Responses.Get(ctx, made.ID, responses.ResponseGetParams{})
	var e *openai.Error
	got.Gone = errors.As(err, &e) && e.StatusCode == http.StatusNotFound
	return got, nil
}

// respBackground is a response that is made while nobody waits.
func respBackground(a ask) (got saw, err error) {
	ctx, c := context.Background(), openaiClient(a)
	r, err := c.Responses.New(ctx, a.resp(respParams{Background: openai.Bool(true)}))
	if err != nil {
		return got, err
	}
	got.First = string(r.Status)
	for r.Status == "queued" || r.Status == "in_progress" {
		time.Sleep(100 * time.Millisecond)
		if r, err = c.Responses.Get(ctx, r.ID, responses.ResponseGetParams{}); err != nil {
			return got, err
		}
	}
	got.answer = respSeen(*r, nil)
	return got, nil
}

// respCancelled is a response that is made in the background and called off.
func respCancelled(a ask) (got saw, err error) {
	ctx, c := context.Background(), openaiClient(a)
	r, err := c.Responses.New(ctx, a.resp(respParams{Background: openai.Bool(true), Reasoning: shared.ReasoningParam{Effort: "max"}}))
	if err != nil {
		return got, err
	}
	if r, err = c.Responses.Cancel(ctx, r.ID); err != nil {
		return got, err
	}
	got.Finish = string(r.Status)
	return got, nil
}

// respLeave goes in the middle of an answer.
func respLeave(a ask) (got saw, err error) {
	var resp *http.Response
	c := openaiClient(a, option.WithBaseURL(a.Leave+"/v1"))
	stream := c.Responses.NewStreaming(context.Background(),
		a.resp(respParams{Reasoning: shared.ReasoningParam{Effort: "max", Summary: shared.ReasoningSummaryAuto}}), option.WithResponseInto(&resp))
	defer stream.Close()
	for got.Pieces < 25 && stream.Next() {
		if t := stream.Current().Type; t == "response.reasoning_summary_text.delta" || t == "response.output_text.delta" {
			got.Pieces++
		}
	}
	if err := stream.Err(); err != nil {
		return got, err
	}
	got.Request = resp.Header.Get("X-Request-Id")
	return got, nil
}

func respErrors(a ask) (saw, error) {
	try := func(p respParams, more ...option.RequestOption) func(*http.Client) error {
		return func(h *http.Client) error {
			c := openaiClient(a, append(more, option.WithHTTPClient(h))...)
			_, err := c.Responses.New(context.Background(), a.resp(p))
			return err
		}
	}
	long := respParams{Model: a.Small, Input: respText(a.TooLong)}
	streamed := func(h *http.Client) error {
		c := openaiClient(a, option.WithHTTPClient(h))
		stream := c.Responses.NewStreaming(context.Background(), long)
		defer stream.Close()
		for stream.Next() {
		}
		return stream.Err()
	}
	return failures([]refusal{
		{"bad_key", try(respParams{}, option.WithAPIKey("mr_live_nobody"))},
		{"no_model", try(respParams{Model: "acme/none"})},
		{"no_credit", try(respParams{}, option.WithAPIKey(a.PoorKey))},
		{"overflow", try(long)},
		{"overflow_stream", streamed},
		{"bad_value", try(respParams{Temperature: openai.Float(9)})},
		{"no_previous", try(respParams{PreviousResponseID: openai.String("resp_none")})},
	}, openaiExplain)
}

func respPlain(ask) respParams    { return respParams{} }
func respLength(ask) respParams   { return respParams{MaxOutputTokens: openai.Int(20)} }
func respBroken(a ask) respParams { return respParams{Model: a.Broken} }
func respThink(ask) respParams {
	return respParams{Reasoning: shared.ReasoningParam{Effort: shared.ReasoningEffortLow, Summary: shared.ReasoningSummaryAuto}}
}
func respForced(a ask) respParams {
	return respParams{Tools: a.respTools(), ToolChoice: responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptionsRequired)}}
}
func respShape(ask) respParams {
	return respParams{Text: responses.ResponseTextConfigParam{Format: responses.ResponseFormatTextConfigParamOfJSONSchema("forecast", forecast)}}
}
func respPicture(a ask) respParams {
	image := responses.ResponseInputContentParamOfInputImage(responses.ResponseInputImageDetailAuto)
	image.OfInputImage.ImageURL = openai.String(a.Image)
	return respParams{MaxOutputTokens: openai.Int(20), Input: respItems(responses.ResponseInputItemParamOfMessage(
		responses.ResponseInputMessageContentListParam{responses.ResponseInputContentParamOfInputText(a.Story), image}, responses.EasyInputMessageRoleUser))}
}

var responsesScenarios = []scenario{
	{"whole", once(respWhole, respPlain)}, {"stream", once(respStream, respPlain)},
	{"length", once(respWhole, respLength)}, {"length stream", once(respStream, respLength)},
	{"think", once(respWhole, respThink)}, {"think stream", once(respStream, respThink)},
	{"tools", respLoop(respWhole, false)}, {"tools stream", respLoop(respStream, false)},
	{"previous", respLoop(respWhole, true)}, {"previous stream", respLoop(respStream, true)},
	{"forced", once(respWhole, respForced)}, {"forced stream", once(respStream, respForced)},
	{"structured", shaped(respWhole, respShape)}, {"structured stream", shaped(respStream, respShape)},
	{"image", once(respWhole, respPicture)}, {"image stream", once(respStream, respPicture)},
	{"sealed", respSealed}, {"kept", respKept}, {"background", respBackground}, {"cancelled", respCancelled},
	{"errors", respErrors}, {"broken", breaks(respStream, respBroken)}, {"leave", respLeave},
}
