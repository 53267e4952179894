package main

import "bufio"

func writePatches(out *bufio.Writer) {}
