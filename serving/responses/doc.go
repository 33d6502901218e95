// Package responses keeps what OpenAI's Responses API remembers: responses with their input, conversations, and responses
// that are made in the background.
//
// It owns the tables responses, response_events, conversations, conversation_items and kept_totals, what a request continues
// from, and the goroutines of background responses. It does not own the shapes (serving/protocol/responses), nor how an answer is made
// and paid for (serving/gate).
//
// Words. Run: a response being made in the background by this process. Owner: the process that makes it. Orphan: a response
// whose owner has fallen silent; whoever notices ends it as failed.
//
// Invariants: every query of a request names its organization and its project: anything else does not exist for it; what
// a client asked not to be stored is never written; a response that has ended never changes again; a response in the
// background ends, whatever becomes of its owner; a request that neither stores nor continues anything asks the database
// nothing; nothing is read for a request before its share of its key's limits was taken; what an organization keeps is counted in
// the transaction that changes it.
package responses
