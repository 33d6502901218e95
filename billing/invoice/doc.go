// Package invoice bills organizations for what their credit did not cover: one invoice a month, and what becomes of it.
//
// It owns invoices, their lines, payments and credit notes, billing_details and the numbers. It does not own what a request
// costs (billing/price, billing/rate), the books (billing/ledger), what may be spent (billing/credit) or the months
// themselves (billing/month).
//
// Words. Usage month: the UTC month in which a request started, by the day of its event's id. Freeze: 48 hours after a
// month's end; usage that is booked later joins the next invoice, with its own month shown. Covered: the usage transactions
// that an invoice is about. Final: it has a number, and nothing of it changes but what was paid, credited or given up.
//
// Invariants.
//   - What an invoice covers is a function of the ledger and the month alone: every usage transaction since the first month
//     is covered by one month's invoice, whoever drafts it and how often.
//   - There is one invoice per organization and month at most, and none where nothing is owed.
//   - The lines add up, to the nano, to what the covered transactions left receivable; their cents add up to the subtotal, which
//     is the same sum rounded once to cents. What that leaves, at most half a cent, is moved to the ledger's account of rounding
//     when the invoice becomes final.
//   - Whatever moves an organization's receivable moves its balance's budget the other way, in the same transaction.
//
// Locks, in this order, each only where it is needed; whatever waits, waits for something further down.
//  1. The organization's approvals (LockApprovals), by the desk around every deed, and by dunning.
//  2. Invoices, by id: LockInvoice, LockDunnedInvoices. Payments, credit notes, reopenings and dunning's steps are changed under
//     their invoice's lock only; what the payment provider did with a credit note is noted by 5 and 6 alone.
//  3. The organization (LockDunnedOrg), by whatever moves its credit limit or suspends it: write-offs and dunning. dunning_holds
//     is changed under it only.
//  4. As everyone: all of the organization's ledger balances, by account, then its budgets. Posting again waits for nothing. Only an
//     account's first balance, which nobody could lock, may be waited for in a circle; db.InTx tries again.
//  5. credit_notes that exist, but before 4 where an operator sends one by hand: nobody who has 4 waits for one.
//  6. invoice_pushes, several of them by invoice. Whoever looks at the payment provider holds nothing meanwhile.
//  7. The series of numbers, until the transaction ends.
package invoice
