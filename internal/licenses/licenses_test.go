package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mit    = "Copyright (c) 2020 A\n\nPermission is hereby granted, free of charge, to any person obtaining\na copy of this software"
	apache = "   Apache License\n   Version 2.0, January 2004"
	gpl    = "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007"
)

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		mit:    "MIT",
		apache: "Apache-2.0",
		gpl:    "",
		"Redistribution and use in source and binary\nforms, with or without modification":                            "BSD-2-Clause",
		"Redistribution and use in source and binary forms. Nor the names of its contributors may be used to endorse": "BSD-3-Clause",
		mit + "\n" + apache:   "Apache-2.0, MIT",
		"All rights reserved": "",
	} {
		names, err := namesOf(part{"m", []string{text}})
		if got := strings.Join(names, ", "); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// A text that several share is there once, with all of them above it.
func TestPage(t *testing.T) {
	got, err := page([]part{{"a", []string{mit}}, {"b", []string{apache, "a notice"}}, {"c", []string{mit}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"MIT                      a\nApache-2.0               b\nMIT                      c\n", "\n\na\nc\n\n" + mit + "\n", "\n\nb\n\na notice\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if n := strings.Count(string(got), mit); n != 1 {
		t.Errorf("a text that two share is there %d times", n)
	}
	if _, err := page([]part{{"a", []string{gpl}}}); err == nil {
		t.Error("a licence that asks for the source is taken")
	}
}

// The texts are those of the package, of its module, and of the folders between.
func TestTexts(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"m/LICENSE.md", "m/license_test.go", "m/taken/NOTICE", "m/taken/over/COPYING", "m/other/LICENSE", "LICENSE"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(mit), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]map[string]bool{}
	if err := addTexts(files, "m", filepath.Join(dir, "m"), filepath.Join(dir, "m", "taken", "over")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, path := range sortedKeys(files["m"]) {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rel)
	}
	if want := "m/LICENSE.md m/taken/NOTICE m/taken/over/COPYING"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := read(map[string]map[string]bool{"bare": {}}); err == nil {
		t.Error("a module without a licence is taken")
	}
}

// A file that is not what would be written fails the check, and is left alone.
func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "licences")
	args := []string{"-program", "../../cmd/tinybroker", "-file", path}
	if err := run(t.Context(), args, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), append(args, "-check"), io.Discard); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "Go standard library") || !strings.Contains(string(text), "google.golang.org/grpc") {
		t.Errorf("incomplete:\n%.2000s", text)
	}
	stale := strings.Replace(string(text), "google.golang.org/grpc\n", "", 1)
	if err := os.WriteFile(path, []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), append(args, "-check"), io.Discard); err == nil {
		t.Error("a file that lacks a module passes")
	}
	if kept, _ := os.ReadFile(path); string(kept) != stale {
		t.Error("the check has written the file")
	}
}
