//go:build !linux

package main

import "fmt"

func main() { fmt.Println("the agent runs on Linux only") }
