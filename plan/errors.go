package plan

import (
	"fmt"
	"strings"
)

// A Kind says what is wrong with a plan or its lowered programs.
type Kind uint8

const (
	// Malformed: a field is out of range or fields contradict each other.
	Malformed Kind = iota
	// Unordered: a step lacks an After that its places demand.
	Unordered
	// Unwritten: a step reads a place that nothing has written, or reads In
	// after Out of the same chunk, which may be the same memory.
	Unwritten
	// WrongResult: a value holds a contribution twice or mixes chunks, or an
	// output does not hold every contribution.
	WrongResult
	// NotIdentical: two ranks combine the contributions to a chunk in
	// different orders, so that rounding may make their results differ.
	NotIdentical
	// Deadlock: there are waits that no order of events can satisfy.
	Deadlock
	// Unsignalled: a rank waits for an action that does not notify it.
	Unsignalled
	// Race: two conflicting accesses are not ordered by program order and
	// waits.
	Race
	// Undelivered: a rank uses a chunk that a peer put into its memory
	// without having waited for that very peer. Order learned through a
	// third rank does not show that the bytes are there.
	Undelivered
	// EarlyFinish: a rank may return while a peer still touches its buffers.
	EarlyFinish
	// NotSynchronized: a rank may leave a barrier that another has not
	// entered.
	NotSynchronized
	// OutOfReach: a step touches the memory of a rank of another node
	// otherwise than by a put into its scratch.
	OutOfReach
	// NotArrived: a rank touches scratch in which another may still be at
	// work in the call before.
	NotArrived
	numKinds
)

var kindNames = [numKinds]string{
	"malformed", "unordered", "unwritten", "wrong result", "not identical",
	"deadlock", "unsignalled", "race", "undelivered", "early finish", "not synchronized",
	"out of reach", "not arrived",
}

// String returns the kind in lower case words.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// A CheckError is the first fault that [Plan.Check] or [Lowered.Verify]
// found. Fields that do not apply are -1.
type CheckError struct {
	Plan   string // the plan's name
	Kind   Kind
	Rank   int // who executes the faulty step or action
	Step   int // index into Plan.Steps
	Action int // index into the rank's program
	Tile   int
	Detail string
}

// Error returns one line: plan, kind, where, and what.
func (e *CheckError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "plan %s: %v", e.Plan, e.Kind)
	if e.Rank >= 0 {
		fmt.Fprintf(&s, ": rank %d", e.Rank)
	}
	if e.Step >= 0 {
		fmt.Fprintf(&s, " step %d", e.Step)
	}
	if e.Action >= 0 {
		fmt.Fprintf(&s, " action %d", e.Action)
	}
	if e.Tile >= 0 {
		fmt.Fprintf(&s, " tile %d", e.Tile)
	}
	return s.String() + ": " + e.Detail
}

// A BuildError reports a mistake in the use of a [Builder].
type BuildError struct {
	Plan   string
	Step   StepID // the step that was being added
	Detail string
}

// Error returns one line: plan, step, and what.
func (e *BuildError) Error() string {
	return fmt.Sprintf("plan %s: step %d: %s", e.Plan, e.Step, e.Detail)
}
