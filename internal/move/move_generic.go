//go:build !amd64 || noasm

package move

const haveStringMove = false

func stringMove(_, _ *byte, _ int) {}

const haveStreamLines = false

func streamLines(_, _ *byte, _ int) {}
