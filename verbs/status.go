package verbs

import "fmt"

// Status says how a work request ended. It is an error, so that
// errors.Is(err, verbs.RetryExceeded) asks what became of it.
type Status uint32

// The statuses. After anything but Success the queue pair is in state ERR and
// all its other requests complete with Flushed, in any order among queues: the
// first status that is not Flushed tells what happened.
const (
	Success               Status = iota
	LocalLength                  // a receive was too short, or a message longer than the port allows
	LocalQPOperation             // the request was malformed
	LocalEEOperation             // reliable datagrams only
	LocalProtection              // a local key or range is wrong
	Flushed                      // the queue pair failed before
	MemoryWindowBind             //
	BadResponse                  // an answer made no sense
	LocalAccess                  // a write hit local memory that may not be written
	RemoteInvalidRequest         // the peer does not allow the operation
	RemoteAccess                 // a remote key or range is wrong
	RemoteOperation              // the peer failed
	RetryExceeded                // the peer does not answer
	RNRRetryExceeded             // the peer posted no receives
	LocalRDDViolation            // reliable datagrams only
	RemoteInvalidRead            // reliable datagrams only
	RemoteAborted                //
	InvalidEEN                   // reliable datagrams only
	InvalidEEState               // reliable datagrams only
	Fatal                        // the device failed
	ResponseTimeout              //
	General                      //
	TagMatching                  //
	TagMatchingRendezvous        //
)

var statuses = [...]struct{ text, cause string }{
	Success:              {"success", ""},
	LocalLength:          {"local length error", "a message was longer than the receive posted for it, or than the port's largest message"},
	LocalQPOperation:     {"local queue pair operation error", "the request is malformed: too many segments, too much inline, no address handle on UD, or an operation this queue pair was not made for; soft-RoCE also means a wrong local key, or a receive that is too short"},
	LocalEEOperation:     {"local end-to-end context operation error", ""},
	LocalProtection:      {"local protection error", "a segment's local key does not cover its range: wrong key, wrong length, a region closed too early, another protection domain, or no local write access where the device was to write"},
	Flushed:              {"flushed", "the queue pair was in error already: look for its first completion that is not flushed, and for its asynchronous events"},
	MemoryWindowBind:     {"memory window bind error", ""},
	BadResponse:          {"bad response", "the answer's opcode was not expected: the peer's queue pair was torn down and made anew, or packet sequence numbers do not agree"},
	LocalAccess:          {"local access error", "the peer wrote where this side's region does not allow it"},
	RemoteInvalidRequest: {"remote invalid request", "the peer's queue pair does not allow the operation, its receive is too short, or there are more reads and atomics under way than MaxDestRDAtomic there allows"},
	RemoteAccess:         {"remote access error", "the remote key is wrong or of a region already closed, the range leaves the region, the region or the queue pair lacks remote access, an atomic is not aligned, or region and queue pair are of different protection domains"},
	RemoteOperation:      {"remote operation error", "the peer failed to complete the operation, on soft-RoCE mostly because its receive was too short: look at its completions and events"},
	RetryExceeded:        {"retries exceeded", "the peer does not answer: its process is gone, its link is down, its queue pair never reached RTR, the GID, LID or MTU is wrong, or packets are filtered or lost on the way"},
	RNRRetryExceeded:     {"receiver-not-ready retries exceeded", "the peer has posted no receive for a message that needs one"},
	LocalRDDViolation:    {"local RDD violation", ""},
	RemoteInvalidRead:    {"remote invalid RD request", ""},
	RemoteAborted:        {"aborted by the peer", "the peer broke off"},
	InvalidEEN:           {"invalid end-to-end context number", ""},
	InvalidEEState:       {"invalid end-to-end context state", ""},
	Fatal:                {"fatal error", "the device failed: see the kernel's log"},
	ResponseTimeout:      {"response timeout", "the peer did not answer in time"},
	General:              {"general error", "the transport failed in a way the device does not explain: see the vendor's code"},
	TagMatching:          {"tag matching error", ""},
	TagMatchingRendezvous: {"tag matching rendezvous incomplete",
		"the rendezvous must be completed by software"},
}

func (s Status) Error() string {
	if int(s) < len(statuses) {
		return statuses[s].text
	}
	return fmt.Sprintf("work completion status %d", uint32(s))
}

// Cause says what usually is behind the status; empty where nothing is known.
func (s Status) Cause() string {
	if int(s) < len(statuses) {
		return statuses[s].cause
	}
	return ""
}
