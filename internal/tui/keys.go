package tui

import "github.com/charmbracelet/bubbles/key"

// keyMap is what each key does outside of prompts.
type keyMap struct {
	Up, Down, PageUp, PageDown, Home, End key.Binding
	Next, Previous, View                  key.Binding
	Open, Back                            key.Binding
	Filter, Sort, Reverse                 key.Binding
	Pause, Faster, Slower, Raw            key.Binding
	Close, Help, Quit, Interrupt, Suspend key.Binding
}

func bind(keys []string, shown, does string) key.Binding {
	return key.NewBinding(key.WithKeys(keys...), key.WithHelp(shown, does))
}

func newKeyMap(g *glyphs) keyMap {
	return keyMap{
		Up:        bind([]string{"up", "k"}, "k "+g.up, "row before"),
		Down:      bind([]string{"down", "j"}, "j "+g.down, "next row"),
		PageUp:    bind([]string{"pgup", "ctrl+b"}, "PgUp", "page back"),
		PageDown:  bind([]string{"pgdown", "ctrl+f"}, "PgDn", "page on"),
		Home:      bind([]string{"home", "g"}, "g", "first row, and stay there"),
		End:       bind([]string{"end", "G"}, "G", "last row"),
		Next:      bind([]string{"tab", "right", "l"}, "tab", "next panel or view"),
		Previous:  bind([]string{"shift+tab", "left", "h"}, "shift+tab", "the one before"),
		View:      bind([]string{"1", "2", "3", "4", "5"}, "1-5", "view"),
		Open:      bind([]string{"enter"}, "enter", "open the row"),
		Back:      bind([]string{"esc"}, "esc", "clear the filter, go back"),
		Filter:    bind([]string{"/"}, "/", "filter by name"),
		Sort:      bind([]string{"s"}, "s", "sort by the next column"),
		Reverse:   bind([]string{"R"}, "R", "reverse the order"),
		Pause:     bind([]string{" "}, "space", "pause or resume"),
		Faster:    bind([]string{"+", "="}, "+", "update more often"),
		Slower:    bind([]string{"-"}, "-", "update less often"),
		Raw:       bind([]string{"b"}, "b", "bytes in full"),
		Close:     bind([]string{"x"}, "x", "close the subscription"),
		Help:      bind([]string{"?"}, "?", "this help"),
		Quit:      bind([]string{"q"}, "q", "quit"),
		Interrupt: bind([]string{"ctrl+c"}, "ctrl+c", "quit"),
		Suspend:   bind([]string{"ctrl+z"}, "ctrl+z", "suspend"),
	}
}

// helpGroups are the keys as the help page shows them.
func (k *keyMap) helpGroups() [][]key.Binding {
	return [][]key.Binding{
		{k.View, k.Next, k.Previous, k.Open, k.Back, k.Quit, k.Suspend, k.Help},
		{k.Up, k.Down, k.PageUp, k.PageDown, k.Home, k.End},
		{k.Filter, k.Sort, k.Reverse, k.Pause, k.Faster, k.Slower, k.Raw, k.Close},
	}
}
