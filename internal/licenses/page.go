package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// licence is one that may be in a program that is passed on under the Apache License 2.0: it asks for no more than its own
// text, which is what the page is for.
type licence struct {
	name    string
	phrases []string // that its text holds, spaces and lines aside
	not     string   // and this one it does not
}

var known = []licence{
	{name: "Apache-2.0", phrases: []string{"Apache License", "Version 2.0"}},
	{name: "BSD-2-Clause", phrases: []string{"Redistribution and use in source and binary forms"}, not: "contributors may be used to endorse"},
	{name: "BSD-3-Clause", phrases: []string{"Redistribution and use in source and binary forms", "contributors may be used to endorse"}},
	{name: "ISC", phrases: []string{"Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee"}},
	{name: "MIT", phrases: []string{"Permission is hereby granted, free of charge, to any person obtaining a copy"}},
	{name: "MIT", phrases: []string{"## License MIT ## Author"}},
}

func (l licence) in(text string) bool {
	for _, phrase := range l.phrases {
		if !strings.Contains(text, phrase) {
			return false
		}
	}
	return l.not == "" || !strings.Contains(text, l.not)
}

// namesOf are the licences of a part. None at all is an error: somebody has to read what it says.
func namesOf(p part) ([]string, error) {
	var names []string
	for _, text := range p.texts {
		text = strings.Join(strings.Fields(text), " ")
		for _, l := range known {
			if l.in(text) {
				names = append(names, l.name)
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: the licence is none of those that are known to be fine", p.name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// page is the file: who has which licence, then each text once, with those it belongs to.
func page(parts []part) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("Licences of what is in the released programs beside tinybroker's own code, for all platforms together.\n" +
		"Made by make licenses.\n\n")
	var order []string
	owners := map[string][]string{}
	for _, p := range parts {
		names, err := namesOf(p)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%-24s %s\n", strings.Join(names, ", "), p.name)
		for _, text := range p.texts {
			if owners[text] == nil {
				order = append(order, text)
			}
			owners[text] = append(owners[text], p.name)
		}
	}
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n\n", strings.Repeat("-", 80))
		for _, name := range owners[text] {
			b.WriteString(name + "\n")
		}
		b.WriteString("\n" + text + "\n")
	}
	return b.Bytes(), nil
}
