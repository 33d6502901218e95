// Package messages is Anthropic's Messages API: it checks its requests, makes Chat Completions bodies of them, and turns an
// engine's stream into its answers, whole and streamed.
//
// It owns what the dialect looks like and what of it means what to an engine. It owns no HTTP (api/anthropic) and no
// pipeline (serving/gate). Text is spliced as it came, still escaped.
//
// # Requests
//
// A request becomes a Chat Completions body and goes through protocol.DecodeBuilt. What is wrong with it is a fault of kind
// Invalid that names the member of the Messages request; Member translates what later steps say of the chat body. What is
// accepted without effect is named in Chat.Ignored.
//
// # Answers
//
// An answer is a protocol.Turn. Each of its parts becomes one content block: reasoning a thinking block, text and refusals
// a text block, a call a tool_use block. The states of a stream are
//
//	nothing → message_start → { block k open → its deltas → block k closed } → message_delta → message_stop
//	                                     (anywhere before message_delta) → error
//
// Invariants, which messagestest checks:
//   - every event's name is its type; nothing but pings comes before message_start or outside of the order above;
//   - blocks are numbered 0, 1, 2, …, one is open at a time, and none is empty but a thinking block whose text is omitted
//     and a tool_use block without arguments;
//   - a thinking block ends with one signature_delta, which is not empty;
//   - the partial_json of a block, put together, is the beginning of one JSON object, whatever the engine sent; whole where
//     the engine gave it whole;
//   - a ping follows the first content_block_start; quiet streams get more;
//   - message_delta comes once, with the reason and all of the usage; its input_tokens, cache_creation_input_tokens and
//     cache_read_input_tokens have no token in common;
//   - after an error nothing comes: no message_delta, no message_stop;
//   - a whole answer equals the accumulated stream of the same engine's stream. A tool's input that was cut is what its
//     finished members say, in both.
//
// The reason an answer ended: the token limit before all (max_tokens); then content filters and refusals (refusal); then tool
// calls (tool_use), even where the engine says "stop" after a forced one; then one of the request's stop sequences
// (stop_sequence); then end_turn.
package messages
