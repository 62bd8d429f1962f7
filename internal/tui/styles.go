package tui

import (
	"io"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// tone is what a piece of text means; styles say how it looks. Each tone goes with a word or a mark, so that nothing is lost without
// colours.
type tone int

const (
	toneText    tone = iota
	toneStrong       // titles, the active tab
	toneFaint        // labels, rules, what matters less
	toneGood         // as it should be
	toneWarning      // look here
	toneBad          // something is lost or stands still
	toneChosen       // the row of the cursor
	toneCount        // of tones
)

// styles draw text of each tone. The zero value draws plain text.
type styles struct{ of [toneCount]*lipgloss.Style }

// newStyles returns styles in the sixteen colours that every terminal lets its user choose, or none at all.
func newStyles(color bool) styles {
	if !color {
		return styles{}
	}
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(termenv.ANSI)
	r.SetHasDarkBackground(true)
	base := r.NewStyle().Inline(true)
	paint := func(c string) lipgloss.Style { return base.Foreground(lipgloss.Color(c)) }
	var s styles
	for t, style := range map[tone]lipgloss.Style{
		toneStrong:  base.Bold(true),
		toneFaint:   base.Faint(true),
		toneGood:    paint("2"),
		toneWarning: paint("3"),
		toneBad:     paint("1").Bold(true),
		toneChosen:  base.Reverse(true),
	} {
		s.of[t] = &style
	}
	return s
}

// draw returns text as the tone looks.
func (s *styles) draw(t tone, text string) string {
	if s.of[t] == nil || text == "" {
		return text
	}
	return s.of[t].Render(text)
}

// env is what drawing depends on apart from what is drawn.
type env struct {
	*glyphs
	styles styles
	ascii  bool
	raw    bool // sizes to the byte
}

func newEnv(ascii, color bool) *env {
	e := &env{glyphs: &unicodeGlyphs, styles: newStyles(color), ascii: ascii}
	if ascii {
		e.glyphs = &asciiGlyphs
	}
	return e
}

// name makes a name from outside safe to draw.
func (e *env) name(s string) string { return clean(s, e.ascii) }

// cut shortens text to n columns.
func (e *env) cut(text string, n int) string { return cut(text, n, e.ellipsis) }

// pad makes text n columns wide.
func (e *env) pad(text string, n int, right bool) string { return pad(text, n, right, e.ellipsis) }
