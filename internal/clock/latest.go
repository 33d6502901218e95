package clock

import "time"

// Latest is the latest moment that anybody may name for something to end. It is far enough for every agreement, catches a
// mistyped year, and keeps dates inside the four-digit years that JSON can write, whatever their time zone.
var Latest = time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC)

// LatestText is Latest as people are told it.
const LatestText = "2200-01-01"
