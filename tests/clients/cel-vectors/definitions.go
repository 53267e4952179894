package main

import "bufio"

func writeDefinitions(out *bufio.Writer) {}
func writeObjects(out *bufio.Writer)     {}
