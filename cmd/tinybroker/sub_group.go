package main

import (
	"strings"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// ackModes are the words of --ack: auto is whatever the group does, which is to acknowledge unless its first member did not.
var ackModes = map[string]core.AckMode{"auto": core.AckDefault, "none": core.AckNone}

// askGroup fills in what is asked of the group.
func (o *subOptions) askGroup(r *rpc.SubscribeOptions) {
	r.Group = o.group
	r.Ack = ackModes[o.ack]
	r.MaxInFlight = o.inFlight()
	r.MaxAttempts = o.maxAttempts
	if o.given["ack-deadline"] {
		r.AckDeadline = &o.ackDeadline
	}
	r.Grace = o.grace + leavePatience/2
	if o.exec == "" {
		r.Grace = writePatience
		// Whoever reads the output may stop reading for good. The least there is: what it does not take within the ack deadline
		// goes to another member.
		r.MaxExtension = time.Nanosecond
	}
}

// inFlight is how many messages to ask for at once; 0: as many as the broker gives.
func (o *subOptions) inFlight() int {
	switch wanted := core.DefaultOptions().MaxInFlight; {
	case o.maxInFlight > 0:
		return o.maxInFlight
	case o.exec != "":
		return o.execParallel // more would only wait here, where others cannot have them
	case o.count > 0 && o.count < int64(wanted):
		return int(o.count)
	}
	return 0
}

// stopPatience is how long an ended sub waits until it has left the broker.
func (o *subOptions) stopPatience() time.Duration {
	patience := writePatience
	if o.group != "" {
		patience += leavePatience
	}
	if o.exec != "" {
		patience += o.grace + killPatience
	}
	return patience
}

// checkGroup refuses what does not go together. onlyHere tells whether a flag is on the command line: elsewhere, settings may be meant for
// other commands.
func (o *subOptions) checkGroup(onlyHere func(flag string) bool) error {
	if o.group != "" {
		if err := core.ValidateGroupName(o.group); err != nil {
			return withHint(badName("group", err), "a group's name is one word without dots or wildcards, such as workers; its dead letters go to $tb.dlq.NAME")
		}
	}
	for _, flag := range []string{"ack", "ack-deadline", "max-attempts", "max-in-flight"} {
		if o.group == "" && onlyHere(flag) {
			return usagef("sub: --%s is for members of a --group", flag)
		}
	}
	for _, flag := range []string{"exec-parallel", "grace"} {
		if o.exec == "" && onlyHere(flag) {
			return usagef("sub: --%s is for --exec", flag)
		}
	}
	switch {
	case o.group == "" && onlyHere("group"):
		return usagef("sub: --group is empty") // as from a variable that is not set: alone, each member would get everything
	case o.group != "" && o.overflow == "evict":
		return usagef("sub: --overflow evict is not for a --group: choose reject, drop-oldest or drop-newest")
	case o.group == "" && o.overflow == "reject":
		return usagef("sub: --overflow reject is for members of a --group")
	case o.given["exec"] && o.exec == "":
		return usagef("sub: --exec is empty")
	case o.exec != "" && (o.given["output"] || o.format != "" || o.noDelimiter || o.given["delimiter"]):
		return usagef("sub: --exec gives the payload to the command; --output, --format, --delimiter and --no-delimiter are for printing")
	case o.group != "" && o.exec != "" && o.maxInFlight > 0 && o.maxInFlight < o.execParallel:
		return usagef("sub: --max-in-flight %d is less than --exec-parallel %d: that many commands would never run", o.maxInFlight, o.execParallel)
	}
	return nil
}

// differs is the refusal of a group whose settings are others than asked for.
func (o *subOptions) differs(err error) error {
	var asked []string
	for _, flag := range []string{"ack", "overflow", "capacity", "ack-deadline", "max-attempts"} {
		if o.given[flag] {
			asked = append(asked, "--"+flag)
		}
	}
	return withHint(err, "without "+strings.Join(asked, " and ")+" a member takes what the group has")
}

func (s *subSession) tellOpened(op rpc.Opened) {
	if !op.Group {
		s.notices.detail("subscribed as %s", op.SubscriptionID)
		return
	}
	deadline := "none"
	if op.AckDeadline > 0 {
		deadline = shortDuration(op.AckDeadline)
	}
	s.notices.detail("subscribed as %s in group %s: ack %s, max_in_flight %d, ack_deadline %s, max_attempts %d, overflow %s, capacity %d",
		op.SubscriptionID, s.o.group, op.Ack, op.MaxInFlight, deadline, op.MaxAttempts, op.Overflow, op.Capacity)
	if op.Ack == core.AckNone && s.o.ack != "none" {
		s.notices.info("group %s was made with --ack none: what a member has and does not finish is lost", s.o.group)
	}
}

// tellGroupGap tells a member of a time without a connection. What was published meanwhile is not missing, unless the group is another one.
func (s *subSession) tellGroupGap(g rpc.Gap) {
	if g.Restarted {
		s.notices.info("back in group %s after %s; the broker was restarted: what it held is lost", s.o.group, roughDuration(g.Outage))
		return
	}
	s.notices.info("back in group %s after %s; what was in flight went to other members, or comes again", s.o.group, roughDuration(g.Outage))
}
