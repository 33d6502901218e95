package hook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Headers of a delivery.
const (
	SignatureHeader = "Millrace-Signature" // t=<unix seconds>,v1=<hex of HMAC-SHA-256(secret, "<t>.<body>")>
	EventHeader     = "Millrace-Event-Id"
)

// Tolerance is how old a signature may be. Receivers should refuse older ones.
const Tolerance = 5 * time.Minute

// Sign gives the signature header of a body that is sent at a moment.
func Sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(sum(secret, t, body))
}

func sum(secret, t string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// Verify says whether a header signs the body, as a receiver should check it.
func Verify(secret, header string, body []byte, now time.Time) error {
	var t, given string
	for _, part := range strings.Split(header, ",") {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "t":
			t = value
		case "v1":
			given = value
		}
	}
	unix, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		return fmt.Errorf("hook: a signature without a time")
	}
	want, err := hex.DecodeString(given)
	if err != nil || !hmac.Equal(want, sum(secret, t, body)) {
		return fmt.Errorf("hook: the signature is not of this body and secret")
	}
	if now.Sub(time.Unix(unix, 0)).Abs() > Tolerance {
		return fmt.Errorf("hook: the signature is of another time")
	}
	return nil
}
