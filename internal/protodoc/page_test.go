package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const contract = "tinybroker/v1/tinybroker.proto"

func committed(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The committed page is what the contract's comments say today.
func TestProtocolPage(t *testing.T) {
	buf, err := exec.LookPath("buf")
	if err != nil {
		if os.Getenv("TINYBROKER_REQUIRE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), buf, "build", "--as-file-descriptor-set", "-o", "-")
	cmd.Dir = filepath.Join("..", "..", "proto")
	data, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var files descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &files); err != nil {
		t.Fatal(err)
	}
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{FileToGenerate: []string{contract}, ProtoFile: files.GetFile()})
	if err != nil {
		t.Fatal(err)
	}
	if err := generate(plugin); err != nil {
		t.Fatal(err)
	}
	response := plugin.Response()
	if len(response.GetFile()) != 1 || response.GetFile()[0].GetName() != "protocol.md" {
		t.Fatalf("made %v", response)
	}
	if response.GetFile()[0].GetContent() != committed(t) {
		t.Error("docs/protocol.md is not current; run make generate")
	}
}

// It has every method, field and value with its number, which is seen without any tool.
func TestProtocolPageIsComplete(t *testing.T) {
	page := committed(t)
	file := tinybrokerv1.File_tinybroker_v1_tinybroker_proto
	has := func(format string, args ...any) {
		t.Helper()
		if want := fmt.Sprintf(format, args...); !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		has("\n## %s\n", s.Name())
		for j := range s.Methods().Len() {
			has("\n### %s\n\n`rpc %[1]s` takes ", s.Methods().Get(j).Name())
		}
	}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		has("\n### %s\n", m.Name())
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			has("| `%s` | %d | ", f.Name(), f.Number())
		}
	}
	for i := range file.Enums().Len() {
		e := file.Enums().Get(i)
		has("\n### %s\n", e.Name())
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			has("| `%s` | %d | ", v.Name(), v.Number())
		}
	}
	if strings.Contains(page, " |  |\n") {
		t.Error("something has no comment")
	}
}

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		`none of * ? [ ] { } \ !`: `none of \* ? \[ \] { } \\ !`,
		"`a*b` and *":             "`a*b` and \\*",
		"a|b <c>":                 `a\|b \<c>`,
	} {
		if got := escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
