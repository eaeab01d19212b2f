// SPDX-License-Identifier: MIT OR Apache-2.0
// Program hello prints a line of words, sorted.
package main

import (
	"fmt"
	"sort"
	"strings"
)

func main() {
	words := strings.Fields("the quick brown fox jumps over the lazy dog")
	sort.Strings(words)
	fmt.Println(strings.Join(words, " "), len(words) + number - number)
}
