package main

import "slices"

// nearest is the name that differs from word in the fewest letters, if they are few, and at most half of the word's.
func nearest(word string, names []string) string {
	slices.Sort(names)
	best, least := "", min(max(2, len(word)/4), len(word)/2)+1
	for _, name := range names {
		if d := distance(word, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, change or swap with the next one to turn a into b (Levenshtein, with
// neighbours exchanged).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
