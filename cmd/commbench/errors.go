package main

import (
	"errors"
	"fmt"
	"strings"
)

// Exit statuses. After a signal it is 128 and the signal's number.
const (
	exitGood  = 0
	exitWrong = 1
	exitUsage = 2
	exitRun   = 3
)

// usageError is a mistake on the command line.
type usageError struct{ reason string }

func (e *usageError) Error() string { return e.reason }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// unknown is the error for a value of a flag that is none of the known ones.
func unknown(flag, value string, known []string) error {
	return usagef("--%s %q: valid are %s", flag, value, strings.Join(known, ", "))
}

// memoryError says that the buffers do not fit.
type memoryError struct {
	Ranks       int
	Need, There uint64
}

func (e *memoryError) Error() string {
	return fmt.Sprintf("%d ranks need %s of memory, there is %s available", e.Ranks, formatBytes(e.Need), formatBytes(e.There))
}

// wrongError says how many results were wrong. They have been printed.
type wrongError struct{ wrong int64 }

func (e *wrongError) Error() string { return fmt.Sprintf("%d wrong results", e.wrong) }

// signalError says that a signal ended the run.
type signalError struct {
	name   string
	number int
}

func (e *signalError) Error() string { return fmt.Sprintf("ended by signal %d (%s)", e.number, e.name) }

// exitStatus maps an error to what the process exits with.
func exitStatus(err error) int {
	var (
		usage  *usageError
		wrong  *wrongError
		signal *signalError
	)
	switch {
	case err == nil:
		return exitGood
	case errors.As(err, &signal):
		return 128 + signal.number
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &wrong):
		return exitWrong
	}
	return exitRun
}

// oneLine is an error's text as one line.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// toldError is an error that has been reported already.
type toldError struct{ err error }

func (e *toldError) Error() string { return e.err.Error() }

func (e *toldError) Unwrap() error { return e.err }
