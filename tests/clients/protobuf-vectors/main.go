// Writes what the transcoder of protobuf bodies is built from and judged by:
//
//	protobuf-vectors tables    the fields of every message, for the transcoder
//	protobuf-vectors vectors   objects as the original encodes them, for its tests
package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "tables":
		writeTables(out)
	case len(os.Args) == 2 && os.Args[1] == "vectors":
		writeVectors(out)
	default:
		fmt.Fprintln(os.Stderr, "usage: protobuf-vectors tables|vectors")
		os.Exit(2)
	}
}
