package main

import (
	"fmt"
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

// clashes are the settings that do not go together.
func (o *subOptions) clashes() []clash {
	raw := func() bool { return o.format != "" || o.output == "raw" || o.output == "auto" }
	list := []clash{
		{flag: "format", with: []string{"output"}, equal: true, text: "--format and --output exclude each other",
			found: func() bool { return o.format != "" && o.given["output"] }},
		{flag: "no-delimiter", with: []string{"delimiter"}, equal: true, text: "--delimiter and --no-delimiter exclude each other",
			found: func() bool { return o.noDelimiter && o.given["delimiter"] }},
		{flag: "delimiter", with: []string{"output"}, text: "--delimiter and --no-delimiter are for raw output and --format",
			found: func() bool { return o.given["delimiter"] && !raw() }},
		{flag: "no-delimiter", with: []string{"output"}, text: "--delimiter and --no-delimiter are for raw output and --format",
			found: func() bool { return o.noDelimiter && !raw() }},
	}
	for _, name := range []string{"ack", "ack-deadline", "max-attempts", "max-in-flight"} {
		list = append(list, clash{flag: name, text: "--" + name + " is for members of a --group",
			found: func() bool { return o.group == "" && o.given[name] }})
	}
	for _, name := range []string{"exec-parallel", "grace"} {
		list = append(list, clash{flag: name, text: "--" + name + " is for --exec",
			found: func() bool { return o.exec == "" && o.given[name] }})
	}
	list = append(list, []clash{
		{flag: "group", text: "--group is empty", // as from a variable that is not set: alone, each member would get everything
			found: func() bool { return o.group == "" && o.given["group"] }},
		{flag: "overflow", text: "--overflow evict is not for a --group: choose reject, drop-oldest or drop-newest",
			found: func() bool { return o.group != "" && o.overflow == "evict" }},
		{flag: "overflow", text: "--overflow reject is for members of a --group",
			found: func() bool { return o.group == "" && o.overflow == "reject" }},
		{flag: "exec", text: "--exec is empty",
			found: func() bool { return o.exec == "" && o.given["exec"] }},
	}...)
	for _, name := range []string{"output", "format", "delimiter", "no-delimiter"} {
		list = append(list, clash{flag: name,
			text:  "--exec gives the payload to the command; --output, --format, --delimiter and --no-delimiter are for printing",
			found: func() bool { return o.exec != "" && o.given[name] }})
	}
	return append(list, clash{flag: "max-in-flight", with: []string{"exec-parallel"}, equal: true,
		text: fmt.Sprintf("--max-in-flight %d is less than --exec-parallel %d: that many commands would never run", o.maxInFlight, o.execParallel),
		found: func() bool {
			return o.group != "" && o.exec != "" && o.maxInFlight > 0 && o.maxInFlight < o.execParallel
		}})
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
