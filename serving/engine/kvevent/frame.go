package kvevent

import (
	"encoding/binary"
	"fmt"
)

// endOfReplay is the sequence number that ends a replay; its payload is empty.
const endOfReplay = -1

// message is a batch on its way: its number in the engine's life, from 0 on, and its payload.
type message struct {
	seq     int64
	payload []byte
}

// frames writes a published message.
func (m message) frames(topic string) [][]byte {
	return [][]byte{[]byte(topic), binary.BigEndian.AppendUint64(nil, uint64(m.seq)), m.payload}
}

// parseFrames reads a published message [topic, seq, payload], or an answer to a replay request: [empty, topic, seq,
// payload], from older engines without the topic. Sequence number and payload are the last two in all of them.
func parseFrames(frames [][]byte) (message, error) {
	n := len(frames)
	if n < 3 || n > 4 || len(frames[n-2]) != 8 {
		return message{}, fmt.Errorf("kvevent: a message of %d frames is none", n)
	}
	m := message{seq: int64(binary.BigEndian.Uint64(frames[n-2])), payload: frames[n-1]}
	if m.seq < endOfReplay || m.seq == endOfReplay && len(m.payload) > 0 {
		return message{}, fmt.Errorf("kvevent: sequence number %d", m.seq)
	}
	return m, nil
}

// replayRequest asks for all messages from a number on.
func replayRequest(from int64) [][]byte {
	return [][]byte{{}, binary.BigEndian.AppendUint64(nil, uint64(from))}
}

func parseReplayRequest(frames [][]byte) (from int64, ok bool) {
	if len(frames) == 0 || len(frames[len(frames)-1]) != 8 {
		return 0, false
	}
	from = int64(binary.BigEndian.Uint64(frames[len(frames)-1]))
	return from, from >= 0
}
