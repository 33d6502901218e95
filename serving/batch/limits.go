package batch

import "time"

// Limits of files.
const (
	ChunkBytes   = 1 << 20
	MaxFileBytes = 100 << 20 // of an upload; output files are as long as they get
	MaxOrgBytes  = 10 << 30  // of all files of an organization, beyond which nothing more can be uploaded
	MaxOrgFiles  = 20_000
	maxName      = 255                 // bytes of a file's name
	MinExpiry    = time.Hour           // that can be asked for
	MaxExpiry    = 30 * 24 * time.Hour // and what holds when nothing is asked for
	giveUpAfter  = 2 * time.Hour       // an upload that takes longer has been given up
	sweepEvery   = 10 * time.Minute
	sweptAtOnce  = 100                 // files
	keepBatches  = 90 * 24 * time.Hour // from their making, once ended
	MaxListFiles = 10_000
	MaxListed    = 100
)

// Limits of batches.
const (
	MaxLines      = 50_000
	MaxLineBytes  = 4 << 20 // a million tokens of text fit
	maxCustomID   = 512     // bytes
	maxErrors     = 50      // that a failed batch tells
	MaxOpen       = 100     // batches of an organization that have not ended
	Window        = 24 * time.Hour
	maxMetadata   = 16
	maxMetaKey    = 64  // characters
	maxMetaValue  = 512 // characters
	linesAtOnce   = 500 // written in one statement
	resultsAtOnce = 20  // read in one statement
)

// Limits of the runner.
const (
	holdTime      = 30 * time.Second // of a lease; renewed at a third of it
	pollEvery     = 2 * time.Second  // between looks for batches of other gateways' customers
	maxHeld       = 32               // batches that a gateway works on at once
	maxRunning    = 64               // lines in flight on a gateway
	maxPerBatch   = 32               // and of one batch
	pageLines     = 64               // lines read at once to be started
	slotPoll      = 100 * time.Millisecond
	callOffAfter  = 10 * time.Minute // lines in flight when a batch was cancelled or has expired
	settleEvery   = time.Second      // between tries of lines that may have been charged, once their batch has ended
	pauseBroke    = time.Minute      // until a batch without credit is tried again
	pauseBusy     = 5 * time.Second  // until one that found no engine, or not enough room, is
	pauseMost     = time.Minute
	maxAttempts   = 4 // of a line whose engine fails
	statementTime = 10 * time.Second
	writeRetry    = 500 * time.Millisecond
)
