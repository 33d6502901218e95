package dsml

// Version is a model's prompt template.
type Version int

// The versions.
const (
	V41 Version = iota // DeepSeek V4.1 Flash
	V4                 // DeepSeek V4 Pro
)

// The special tokens, as the tokenizers spell them.
const (
	tokenBegin     = "<｜begin▁of▁sentence｜>"
	tokenEnd       = "<｜end▁of▁sentence｜>"
	tokenSystem    = "<｜System｜>"
	tokenUser      = "<｜User｜>"
	tokenAssistant = "<｜Assistant｜>"
	tokenReminder  = "<｜latest_reminder｜>"
	tokenThink     = "<think>"
	tokenThinkEnd  = "</think>"
	tokenDSML      = "｜DSML｜"
	tokenImage     = "<｜image｜>"
)

// markup is what differs between the versions.
type markup struct {
	gap         string // between the DSML token and an element's name
	calls       string // the element around all calls
	emptyLine   bool   // a call without parameters holds an empty line
	systemToken bool   // system messages have a token and stay in their places
	images      bool

	smallest      int               // power of ten that is written without an exponent
	shortExponent bool              // exponents have no leading zero
	effort        map[string]string // what a system prompt says about the effort of thinking
	json          string            // how JSON is asked for
}

func (v Version) markup() *markup {
	if v == V4 {
		return &markupV4
	}
	return &markupV41
}

var markupV41 = markup{
	gap: " ", calls: "calls", emptyLine: true, systemToken: true, images: true, smallest: -4,
	effort: map[string]string{
		"low":  "Reasoning Effort: 50 (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
		"high": "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
		"max":  "Reasoning Effort: 100 (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
	},
	json: schemaIntro + `{"type": "json_object"}`,
}

var markupV4 = markup{
	calls: "tool_calls", smallest: -5, shortExponent: true,
	effort: map[string]string{
		"high": "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n" +
			"You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n" +
			"Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n",
		"max": "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n" +
			"You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.\n" +
			"Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.\n\n",
	},
	json: "\n\nYou are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON object ONLY.",
}

// efforts maps what clients say to the efforts that the models know.
var efforts = map[string]string{"minimal": "low", "low": "low", "medium": "high", "high": "high", "xhigh": "high", "max": "max"}

const defaultEffort = "high"
