package core

// A gap is what an index knows of a * in a glob or of a ** between segments, to give up on it as early as a matcher of a
// single pattern would: of all ways to go on from it only the first to each next gap matters, since whatever follows can
// as well be skipped there. The rest of the ways lead to ends, and those lie at a known distance.
type gap struct {
	id    uint32 // its number while it exists
	next  int32  // gaps behind it, not counting those behind another gap
	ends  int32  // patterns that end behind it without another gap
	reach int32  // the farthest of those ends, in segments or bytes; not less than it was before some went
}

func (g *gap) addEnd(distance int) {
	g.ends++
	g.reach = max(g.reach, int32(distance))
}

func (g *gap) removeEnd() {
	g.ends--
	if g.ends == 0 {
		g.reach = 0
	}
}
