// The agent is the first process of a soft-RoCE test machine: it mounts, loads
// modules, brings up eth0 and rxe0, and serves package remote on the machine's
// serial port and, to the other machines, on a TCP port.
//
// As `agent rsh HOST COMMAND...` it runs a shell command on another machine,
// which is how mpirun starts its daemons; as `agent put PATH MODE` it writes
// standard input to a file.
package main
