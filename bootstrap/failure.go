package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A failure is the first cause for which a job ended, as ranks tell it to each
// other: a code for what can be told apart, the ranks at fault, and the text.
// The same codes answer a rank that is not let in.
const (
	codeFine = iota
	codeOther
	codeVersion
	codeSize
	codeRank
	codeDuplicate
	codeSecret
	codeOtherJob
	codeAddress
	codeMissing
	codeLost
	codeLeft
	codeWait
	codeFrame
	codeUnreachable
)

// joinCauses are the codes of a JoinError.
var joinCauses = map[byte]error{
	codeVersion: ErrVersion, codeSize: ErrSize, codeRank: ErrRank, codeDuplicate: ErrDuplicate,
	codeSecret: ErrSecret, codeOtherJob: ErrOtherJob, codeAddress: ErrAddress,
}

const (
	longestText = 4 << 10
	noRank      = 0xffffffff
)

// failureLimit bounds an encoded failure.
func failureLimit(size int) int { return 1 + 4 + 4 + 4*size + longestText }

func codeOf(cause error) byte {
	for code, c := range joinCauses {
		if errors.Is(cause, c) {
			return code
		}
	}
	return codeOther
}

// encodeFailure makes of an error what the other ranks are told.
func encodeFailure(err error) []byte {
	code, rank, list := byte(codeOther), -1, []int(nil)
	var (
		job         *JobError
		join        *JoinError
		missing     *MissingError
		lost        *LostError
		left        *leftError
		wait        *WaitError
		frame       *FrameError
		unreachable *UnreachableError
	)
	switch {
	case errors.As(err, &job):
		if job.encoded != nil {
			return job.encoded
		}
	case errors.As(err, &join):
		code, rank = codeOf(join.Cause), join.Rank
	case errors.As(err, &missing):
		code, list = codeMissing, missing.Ranks
	case errors.As(err, &lost):
		code, rank = codeLost, lost.Rank
		if errors.As(lost.Err, &frame) {
			code = codeFrame
		}
	case errors.As(err, &left):
		code, rank = codeLeft, left.Rank
	case errors.As(err, &wait):
		code, rank = codeWait, wait.Rank
	case errors.As(err, &unreachable):
		code, rank = codeUnreachable, unreachable.Rank
	}
	b := []byte{code}
	b = binary.LittleEndian.AppendUint32(b, uint32(rank)) // -1 is noRank
	b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
	for _, r := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	return append(b, clip(err.Error())...)
}

// decodeFailure is the error that a rank has that is told.
func decodeFailure(b []byte, size int) (*JobError, error) {
	if len(b) < 9 || len(b) > failureLimit(size) {
		return nil, &FrameError{fmt.Sprintf("a failure of %d bytes", len(b))}
	}
	e := &JobError{Rank: -1, encoded: b}
	code, rank, n := b[0], binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint32(b[5:])
	b = b[9:]
	if n > uint32(size) || uint64(len(b)) < 4*uint64(n) {
		return nil, &FrameError{fmt.Sprintf("a failure of %d of %d ranks", n, size)}
	}
	list := make([]int, n)
	for i := range list {
		r := binary.LittleEndian.Uint32(b[4*i:])
		if r >= uint32(size) {
			return nil, &FrameError{fmt.Sprintf("a failure of rank %d of %d", r, size)}
		}
		list[i] = int(r)
	}
	b = b[4*n:]
	if len(b) > longestText || !utf8.Valid(b) {
		return nil, &FrameError{"a failure with a bad text"}
	}
	e.Reason = string(b)
	if rank != noRank {
		e.Rank = int(rank)
	}
	switch code {
	case codeMissing:
		e.Err = &MissingError{Ranks: list, Size: size}
	case codeLost, codeFrame:
		e.Err = &LostError{Rank: e.Rank}
	case codeLeft:
		e.Err = &leftError{e.Rank}
	default:
		if cause, ok := joinCauses[code]; ok {
			e.Err = &JoinError{Cause: cause, Rank: e.Rank}
		}
	}
	return e, nil
}

// clip makes a text fit.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), longestText)], "")
}

// leftError names the rank that has left.
type leftError struct{ Rank int }

func (e *leftError) Error() string { return fmt.Sprintf("rank %d %v", e.Rank, ErrLeft) }
func (e *leftError) Unwrap() error { return ErrLeft }

// patience is how long a rank that does not read is written to before it is
// given up, so that the others are told.
const patience = 500 * time.Millisecond
