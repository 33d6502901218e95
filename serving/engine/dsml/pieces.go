package dsml

// Start says where in an answer the model's text begins.
type Start int

// The places.
const (
	ContentStart       Start = iota // the answer; newlines at its start are dropped
	ContentContinued                // in the answer, after a prefix
	ReasoningStart                  // the thoughts; newlines at their start are dropped
	ReasoningContinued              // in the thoughts, after a prefix
	InCalls                         // in a block of tool calls that the prompt opened
)

// ParseOptions say how the text that follows a prompt is to be read. Render makes them.
type ParseOptions struct {
	Start   Start
	Tools   bool     // the model may call tools
	JSON    bool     // any JSON is asked for: a fence around it, and text around that, are dropped
	OneCall bool     // no parallel calls: the answer ends after the first
	Stops   []string // stop sequences; they end the content, never reasoning or calls
}

// Kind says what a piece is.
type Kind int

// The kinds, in the order in which they come.
const (
	Reasoning Kind = iota
	Content
	CallBegin // a call's id and name
	CallText  // more of the latest call's arguments, which are JSON text
)

// Piece is a piece of an answer. Its text is whole characters, valid until the parser's next call.
type Piece struct {
	Kind     Kind
	Call     int // of calls: which, from 0
	ID, Name string
	Text     []byte
}

// Limits of parsing, in bytes where no unit is named.
const (
	maxStopBytes  = 1 << 10
	maxNewlines   = 4 << 10 // newlines before markup that are dropped with it
	maxName       = 1 << 10 // of a tool or parameter
	maxAttributes = 256     // of a parameter, after its name
	maxValue      = 1 << 20 // of a JSON parameter that is checked; what is longer goes out as it comes
	maxBeforeJSON = 4 << 10 // text before JSON; an answer with more of it is taken as it is
	maxCalls      = 1024    // calls of one answer
	maxKept       = 64 << 10
)

type state int

const (
	inContent state = iota
	beforeJSON
	inJSON
	afterJSON
	inReasoning
	inCalls   // between calls
	inName    // of a call
	inCall    // between its parameters
	inParam   // the name of one
	inType    // its other attributes
	inString  // a parameter that is text
	inValue   // a parameter that is JSON
	inNothing // the answer is over
)
