package core

// heirs says which of some lanes is to have what waits for one without members.
type heirs struct {
	lanes []*lane
	known map[string]*lane // by topic: there may be many lanes, and many messages of a topic; nil: none matches
}

// maxKnownHeirs bounds the topics that are remembered at once.
const maxKnownHeirs = 1024

func newHeirs(lanes ...*lane) *heirs { return &heirs{lanes, make(map[string]*lane)} }

// of returns what says for a record that waits for l which lane is to have it: the first that matches, else l itself.
func (h *heirs) of(l *lane) func(record []byte) *lane {
	return func(record []byte) *lane {
		topic := l.group.encoding.Topic(record)
		heir, ok := h.known[string(topic)]
		if !ok {
			heir = h.find(string(topic))
		}
		if heir == nil {
			return l
		}
		return heir
	}
}

func (h *heirs) find(topic string) *lane {
	if len(h.known) >= maxKnownHeirs {
		clear(h.known)
	}
	h.known[topic] = nil
	for _, l := range h.lanes {
		if l.matches(topic) {
			h.known[topic] = l
			break
		}
	}
	return h.known[topic]
}
