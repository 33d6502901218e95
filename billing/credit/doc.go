// Package credit decides what may be spent. Its gateway side (Allotments) holds money for running requests in memory; its
// operator's side (Desk) gives credit, sets caps and tells what is left. Both work on the same rows, so that no number of
// gateways, however they die, can spend more than a customer has.
//
// It owns budgets, allotments, gateway_epochs, caps and credit_grants. It does not own what a request costs
// (billing/price), what was delivered and charged for good (billing/rate), or the books (billing/ledger).
//
// Words.
//   - Budget: one row per scope (key, project, organization) and period, with cap, settled (rated for good) and
//     outstanding (with gateways). The organization's balance is a budget too; a cap is the rule, a budget its row.
//   - Epoch: one life of a gateway process in the database's eyes. Its validity counts on the process's own clock from
//     before a heartbeat was sent; the clocks of two machines are never compared.
//   - Allotment: what one epoch may spend of one budget, with counters that only grow: allotted, used, returned. A grant is
//     credit given to a customer; the two words never mix.
//   - Hold: the upper bound of one running request, taken from every budget of its payer at once. Pot: an allotment as this
//     process sees it. Wallet: all pots of one organization.
//   - Raise: taking more from the budgets. Return: giving idle money back. Recall: asking the other gateways to return.
//   - Fence: the end of an epoch. Its rest returns when its log is rated to the end and its process is proven dead.
//
// Invariants.
//   - The sum over epochs of allotted - used - returned is the budget's outstanding, after every transaction.
//   - settled + outstanding + delta <= cap, or outstanding does not grow. (A lowered cap may leave the sum above it.)
//   - In memory, free = allotted - returned - open holds - everything ever charged, and is never negative.
//   - A hold takes from all budgets or from none, and is settled once, for at most what it holds. Its next extension joins the
//     budgets of caps that were set since.
//   - Where a budget's cap fell below what is taken of it, nothing is taken from memory: what is freed goes back first.
//   - Past its validity, and from the moment it finds its row gone or closed, a process admits nothing.
//   - Nobody is told 402 while idle money of the budget lies with another gateway that answers within RecallWait. What was
//     just proven to be nowhere is believed to be nowhere for refusalHolds, unless a notice says otherwise.
//   - A database that is away is 503, never 402.
//   - Locks are taken in this order by everyone: gateway_epochs, ledger_balances, allotments by (budget, epoch), budgets by
//     id; FOR NO KEY UPDATE, because allotments refer to budgets. Only a fence locks an epoch's row FOR UPDATE: a raise
//     holds it FOR KEY SHARE, so none can commit after the fence has counted.
package credit
