package bus

// LogStream is the usage log: one message per batch of events, subject LogSubjects with the shard's number.
const (
	LogStream   = "USAGE"
	LogSubjects = "usage.*" // usage.<shard>
)

// Notices make processes look again at once; polls find the same a little later, so a lost notice costs only time.
const (
	NoticeKey       = "notice.key"       // payload: hex hash of an API key, or an organization's id: forget it
	NoticePrice     = "notice.price"     // price versions changed
	NoticeCatalogue = "notice.catalogue" // models, units or hosts changed
	NoticeBudget    = "notice.budget"    // payload: organization id (org_…); its caps or credit changed
	NoticeRecall    = "notice.recall"    // payload: credit.Recall as JSON; gateways return what they do not need
	NoticeReturned  = "notice.returned"  // payload: organization id (org_…); recalled money has come back
	NoticeLag       = "notice.lag"       // the rater's lag, for gateways
)

// Fleet facts: wire.Fact as JSON, on connections of their own, so that a slow reader cannot hurt the log.
const (
	FleetLoad     = "fleet.load"
	FleetKV       = "fleet.kv"
	FleetGateways = "fleet.gateways" // wire.Gateway as JSON: gateways that take data links of hosts that nobody can dial
	FleetSnapshot = "fleet.snapshot" // request: a unit id or nothing; hubs answer by publishing full states on FleetKV
)

// Live is the subject that nudges one organization's open pages; LiveOperator nudges the operator's.
const (
	LivePrefix   = "live." // + organization id
	LiveOperator = "live.operator"
)
