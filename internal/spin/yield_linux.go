package spin

import "golang.org/x/sys/unix"

// Yield lets another thread or process have this core (sched_yield(2)). Go's
// scheduler does not notice: where processes outnumber cores, it is the other
// process that has to run, not another goroutine of this one.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
