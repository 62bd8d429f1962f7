// Package background keeps the program from asking the terminal for its background colour.
//
// Bubble Tea v1 asks when it is initialised, in every process that links it, and waits for seconds where nobody answers:
// `tinybroker version` in a script would take that long. Lip Gloss does not ask once it was told. Packages that are ready
// to be initialised are initialised in the order of their import paths, so this one, which needs Lip Gloss alone and whose path
// sorts before Bubble Tea's, comes first. The colours used here look right on dark and light backgrounds, so the answer
// does not matter.
package background

import "github.com/charmbracelet/lipgloss"

func init() { lipgloss.SetHasDarkBackground(true) }
