// Package batch is files of requests that run when there is room: OpenAI's Files and Batch APIs, without HTTP.
//
// It owns files (uploaded by customers, written by batches), batches, their lines and the runner that works on them. It
// does not own what a request is (serving/protocol and the dialects, by the table of Endpoints), nor how one is served
// and charged: every line goes through serving/gate like any other request, for the key that made the batch.
//
// Words. Line: one request of a batch, by its number in the input file. Hold: one gateway's lease of a batch, numbered by
// terms. Attempt: one request of a line that the usage log heard of. Result: a line's line in an output file. Paused: in
// progress, and nothing of it runs just now, for a reason that the batch tells.
//
// Files are rows of 1 MiB, of one organization (row-level security) and one project. They are written and read a chunk at
// a time, each chunk in a transaction of its own; what an organization stores is counted with every chunk, so that the
// limit is one conditional update. A file is seen once it is whole; uploads that were given up, and files past their end,
// are swept, except a batch's input while the batch runs.
//
// Sharing. Gateways claim batches one at a time by row lock and hold them by a lease on the database's clock, which they
// renew. A gateway that dies or hangs loses its hold, and another takes the batch over. Every write names the hold's term:
// who lost it changes nothing. A batch is worked on by one gateway at a time; many batches are shared by many. Whose batches
// are worked on least is next.
//
// Exactly once. A result is written once, in the transaction that counts it; a line with a result never runs again. A
// line's request id is made of its batch, number and attempt and the moment of the attempt's first start, which is stored
// before the request is: a line that was in flight when its gateway died runs again under the same id, until it has a result,
// and the rater books an id once. So the engine may do the work twice, and the customer pays once. A request that came to
// nothing has left an event that charges nothing, so the next attempt has another number. If a gateway dies between the two,
// or such a line fails again, the attempt that follows repeats the id of that event and is not charged: that is the operator's
// loss.
//
// Spare capacity. Lines are asked for at the service tier batch (gate.Request.Batch): at its percentage of the price where
// the price offers it, and last in the queue of engines that rank. Where none ranks, a line starts only while no unit of
// the model reports requests that wait, and the number in flight grows by one with each line that ends well. Limits per
// minute of the key are not used up by lines.
//
// Money. Budgets and caps hold for each line. A 402 pauses the batch instead of failing its lines: it is tried again
// every minute until it expires. A key that was revoked, or an organization that is suspended, fails the lines. So does
// whatever would fail again. What the engines or we are to blame for is tried again, a few times.
//
// Ending. When the window ends or the customer cancels, no line starts any more; those in flight have a while to end and
// are then called off, uncharged. Those that were in flight when a gateway died may have been charged: they have the same while
// to run again, and if they cannot, the error file says that they may have been paid. Results are kept in every case; lines
// that never ran are told of in the error file. A batch whose endpoint nobody serves any more ends in the same way.
package batch
