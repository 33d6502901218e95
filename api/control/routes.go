package control

import "net/http"

// routes is the whole API, in the order of openapi.yaml.
func (a *api) routes() []route {
	reconcile := act("POST", "/reconcile", "reconcile", http.StatusOK, a.reconcile)
	reconcile.timeout = longTimeout
	preview := send("POST", "/models/{model}/prices/preview", "previewPrice", http.StatusOK, a.previewPrice)
	preview.timeout = longTimeout
	document := get("/orgs/{org}/invoices/{invoice}/pdf", "getInvoiceDocument", a.invoicePDF)
	document.contentType = "application/pdf"
	note := get("/orgs/{org}/invoices/{invoice}/credit-notes/{note}/pdf", "getCreditNoteDocument", a.notePDF)
	note.contentType = "application/pdf"
	drafts := act("POST", "/months/{month}/drafts", "draftMonth", http.StatusOK, a.draftMonth)
	drafts.timeout = longTimeout
	return []route{
		description(),
		get("/status", "getStatus", a.status),
		reconcile,

		get("/orgs", "listOrgs", a.listOrgs),
		send("POST", "/orgs", "createOrg", http.StatusCreated, a.createOrg).withKey(false),
		get("/orgs/{org}", "getOrg", a.getOrg),
		send("PATCH", "/orgs/{org}", "updateOrg", http.StatusOK, a.updateOrg),
		act("PUT", "/orgs/{org}/suspension", "suspendOrg", http.StatusOK, a.suspendOrg),
		act("DELETE", "/orgs/{org}/suspension", "restoreOrg", http.StatusOK, a.restoreOrg),
		get("/orgs/{org}/audit", "listAudit", a.listAudit),

		get("/orgs/{org}/projects", "listProjects", a.listProjects),
		send("POST", "/orgs/{org}/projects", "createProject", http.StatusCreated, a.createProject),
		send("PATCH", "/orgs/{org}/projects/{project}", "renameProject", http.StatusOK, a.renameProject),
		act("DELETE", "/orgs/{org}/projects/{project}", "archiveProject", http.StatusOK, a.archiveProject),

		get("/orgs/{org}/members", "listMembers", a.listMembers),
		send("POST", "/orgs/{org}/members", "addMember", http.StatusCreated, a.addMember),
		send("PUT", "/orgs/{org}/members/{user}", "setRole", http.StatusNoContent, a.setRole),
		act("DELETE", "/orgs/{org}/members/{user}", "removeMember", http.StatusNoContent, a.removeMember),

		get("/orgs/{org}/keys", "listKeys", a.listKeys),
		send("POST", "/orgs/{org}/keys", "createKey", http.StatusCreated, a.createKey),
		get("/orgs/{org}/keys/{key}", "getKey", a.getKey),
		send("PATCH", "/orgs/{org}/keys/{key}", "updateKey", http.StatusOK, a.updateKey),
		act("DELETE", "/orgs/{org}/keys/{key}", "revokeKey", http.StatusOK, a.revokeKey),

		get("/orgs/{org}/caps", "listCaps", a.listCaps),
		send("PUT", "/orgs/{org}/caps/{scope}/{scope_id}/{period}", "setCap", http.StatusOK, a.setCap),
		send("PUT", "/orgs/{org}/caps/{scope}/{scope_id}/{period}/raise", "raiseCap", http.StatusOK, a.raiseCap),
		act("DELETE", "/orgs/{org}/caps/{scope}/{scope_id}/{period}", "removeCap", http.StatusNoContent, a.removeCap),
		get("/orgs/{org}/alerts", "listAlerts", a.listAlerts),
		get("/orgs/{org}/low-balance", "getLowBalance", a.getLowBalance),
		send("PUT", "/orgs/{org}/low-balance", "setLowBalance", http.StatusOK, a.setLowBalance),
		get("/orgs/{org}/webhooks", "listWebhooks", a.listWebhooks),
		send("POST", "/orgs/{org}/webhooks", "createWebhook", http.StatusCreated, a.createWebhook),
		act("POST", "/orgs/{org}/webhooks/{webhook}/test", "testWebhook", http.StatusNoContent, a.testWebhook),
		act("DELETE", "/orgs/{org}/webhooks/{webhook}", "removeWebhook", http.StatusNoContent, a.removeWebhook),
		get("/orgs/{org}/webhook-deliveries", "listDeliveries", a.listDeliveries),

		send("PUT", "/orgs/{org}/credit-limit", "setCreditLimit", http.StatusNoContent, a.setCreditLimit),
		get("/orgs/{org}/grants", "listGrants", a.listGrants),
		send("POST", "/orgs/{org}/grants", "createGrant", http.StatusCreated, a.createGrant).withKey(true),

		send("POST", "/orgs/{org}/adjustments", "createAdjustment", http.StatusCreated, a.createAdjustment).withKey(true),
		send("POST", "/orgs/{org}/reversals", "createReversal", http.StatusCreated, a.createReversal).withKey(true),
		get("/approvals", "listApprovals", a.listApprovals),
		send("PUT", "/approvals/{approval}/refusal", "refuse", http.StatusOK, a.refuse),

		get("/orgs/{org}/invoices", "listInvoices", a.listInvoices),
		get("/orgs/{org}/invoice-so-far", "getInvoiceSoFar", a.invoiceSoFar),
		get("/orgs/{org}/invoices/{invoice}", "getInvoice", a.getInvoice),
		document,
		act("PUT", "/orgs/{org}/invoices/{invoice}/final", "finalizeInvoice", http.StatusOK, a.finalizeInvoice),
		send("POST", "/orgs/{org}/invoices/{invoice}/payments", "recordInvoicePayment", http.StatusCreated, a.recordPayment).withKey(true),
		send("PUT", "/orgs/{org}/invoices/{invoice}/payments/{payment}/reversal", "reverseInvoicePayment", http.StatusOK, a.reversePayment),
		send("POST", "/orgs/{org}/invoices/{invoice}/credit-notes", "createCreditNote", http.StatusCreated, a.createCreditNote).withKey(true),
		note,
		send("POST", "/orgs/{org}/invoices/{invoice}/credit-notes/{note}/sent-by-hand", "sendCreditNoteByHand", http.StatusCreated, a.sendNoteByHand).withKey(true),
		send("POST", "/orgs/{org}/invoices/{invoice}/write-off", "writeOffInvoice", http.StatusCreated, a.writeOff).withKey(true),
		get("/invoices", "listAllInvoices", a.listAllInvoices),

		get("/months", "listMonths", a.listMonths),
		get("/months/{month}", "getMonth", a.getMonth),
		drafts,
		send("PUT", "/months/{month}/closing", "closeMonth", http.StatusOK, a.closeMonth),

		get("/orgs/{org}/price-contracts", "listPriceContracts", a.listContracts),
		send("POST", "/orgs/{org}/price-contracts", "createPriceContract", http.StatusCreated, a.createContract),
		send("PUT", "/orgs/{org}/price-contracts/{contract}/end", "endPriceContract", http.StatusOK, a.endContract),

		get("/orgs/{org}/usage", "getOrgUsage", a.orgUsage),
		get("/usage", "getUsage", a.allUsage),
		stream("/orgs/{org}/exports/{kind}", "exportOrg", a.exportOrg),
		stream("/exports/{kind}", "exportAll", a.exportAll),
		get("/orgs/{org}/requests/{request}", "getRequest", a.getRequest),
		get("/orgs/{org}/ledger", "getLedger", a.getLedger),

		get("/quarantine", "listQuarantine", a.listQuarantine),
		get("/quarantine/{event}", "getQuarantined", a.getQuarantined),
		act("PUT", "/quarantine/{event}/booking", "redriveQuarantined", http.StatusOK, a.redrive),
		send("PUT", "/quarantine/{event}/dismissal", "dismissQuarantined", http.StatusOK, a.dismiss),

		get("/models", "listModels", a.listModels),
		send("POST", "/models", "createModel", http.StatusCreated, a.createModel),
		send("PUT", "/models/{model}/engine-extras", "setEngineExtras", http.StatusOK, a.setEngineExtras),
		get("/models/{model}/prices", "listPrices", a.listPrices),
		send("POST", "/models/{model}/prices", "createPrice", http.StatusCreated, a.createPrice),
		preview,
		act("DELETE", "/prices/{price}", "cancelPrice", http.StatusOK, a.cancelPrice),

		get("/units", "listUnits", a.listUnits),
		send("POST", "/units", "attachUnit", http.StatusCreated, a.attachUnit),
		act("DELETE", "/units/{unit}", "detachUnit", http.StatusNoContent, a.detachUnit),
		get("/hosts", "listHosts", a.listHosts),
		send("POST", "/hosts/join-tokens", "createJoinToken", http.StatusCreated, a.createJoinToken),
		send("PUT", "/hosts/{host}/facts", "setHostFacts", http.StatusNoContent, a.setHostFacts),
		get("/hosts/{host}/consequence", "getDrainConsequence", a.drainConsequence),
		send("PUT", "/hosts/{host}/cordon", "cordonHost", http.StatusNoContent, a.cordonHost),
		send("PUT", "/hosts/{host}/drain", "drainHost", http.StatusNoContent, a.drainHost),
		act("DELETE", "/hosts/{host}/cordon", "uncordonHost", http.StatusNoContent, a.uncordonHost),
		send("POST", "/hosts/{host}/maintenance", "addMaintenance", http.StatusCreated, a.addMaintenance),
		act("DELETE", "/hosts/{host}/maintenance/{window}", "cancelMaintenance", http.StatusNoContent, a.cancelMaintenance),
		get("/maintenance", "listMaintenance", a.listMaintenance),

		get("/fleet", "getFleet", a.getFleet),
		send("PUT", "/fleet/settings", "setFleetSettings", http.StatusOK, a.setFleetSettings),
		get("/fleet/units/{placed}", "getPlacedUnit", a.getPlacedUnit),
		get("/demands", "listDemands", a.listDemands),
		send("PUT", "/demands/{model}/{recipe}", "setDemand", http.StatusOK, a.setDemand),
		act("DELETE", "/demands/{model}/{recipe}", "removeDemand", http.StatusNoContent, a.removeDemand),
		get("/plans", "listPlans", a.listPlans),
		send("POST", "/plans", "draftPlan", http.StatusCreated, a.draftPlan),
		get("/plans/{plan}", "getPlan", a.getPlan),
		act("PUT", "/plans/{plan}/commitment", "commitPlan", http.StatusNoContent, a.commitPlan),

		get("/recipes", "listRecipes", a.listRecipes),
		send("POST", "/recipes", "addRecipe", http.StatusCreated, a.addRecipe),
		get("/recipes/{recipe}", "getRecipe", a.getRecipe),
		act("DELETE", "/recipes/{recipe}", "retireRecipe", http.StatusNoContent, a.retireRecipe),
		send("POST", "/recipe-measurements", "measureRecipe", http.StatusNoContent, a.measureRecipe),

		send("POST", "/sign-in-links", "createSignInLink", http.StatusCreated, a.createSignInLink),
		get("/control-tokens", "listControlTokens", a.listControlTokens),
		send("POST", "/control-tokens", "createControlToken", http.StatusCreated, a.createControlToken),
		act("DELETE", "/control-tokens/{name}", "revokeControlToken", http.StatusNoContent, a.revokeControlToken),
	}
}
