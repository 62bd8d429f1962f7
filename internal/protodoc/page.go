package main

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// page writes Markdown.
type page struct {
	out *protogen.GeneratedFile
}

func (p *page) file(file *protogen.File) {
	p.out.P("# Protocol")
	p.out.P()
	p.out.P("Made from the comments of [", path.Base(file.Desc.Path()), "](../proto/", file.Desc.Path(), ") by `make generate`; edit them there.")
	p.out.P("Step by step it is told for [broadcast](broadcast.md#the-protocol-frame-by-frame) and")
	p.out.P("[consumer groups](consumer-groups.md#the-protocol-frame-by-frame); what to mind in each language, for [clients](clients.md).")
	p.out.P()
	p.text(fileComment(file))
	p.out.P()
	p.out.P("Package `", file.Desc.Package(), "`.")
	for _, s := range file.Services {
		p.service(s)
	}
	p.out.P()
	p.out.P("## Messages")
	for _, m := range file.Messages {
		p.message(m)
	}
	p.out.P()
	p.out.P("## Enumerations")
	for _, e := range file.Enums {
		p.enum(e)
	}
}

// fileComment is what stands above the first line of the file.
func fileComment(file *protogen.File) string {
	const syntaxField = 12 // of google.protobuf.FileDescriptorProto
	for _, location := range file.Proto.GetSourceCodeInfo().GetLocation() {
		if path := location.GetPath(); len(path) == 1 && path[0] == syntaxField {
			return location.GetLeadingComments()
		}
	}
	return ""
}

func (p *page) service(s *protogen.Service) {
	p.heading("##", s.Desc.Name(), s.Comments)
	for _, m := range s.Methods {
		p.out.P()
		p.out.P("### ", m.Desc.Name())
		p.out.P()
		p.out.P("`rpc ", m.Desc.Name(), "` takes ", side(m.Desc.IsStreamingClient(), m.Input), ", answers ", side(m.Desc.IsStreamingServer(), m.Output), ".")
		p.text(string(m.Comments.Leading))
	}
}

func side(stream bool, m *protogen.Message) string {
	if stream {
		return "a stream of " + reference(m.Desc)
	}
	return "one " + reference(m.Desc)
}

func (p *page) message(m *protogen.Message) {
	p.heading("###", m.Desc.Name(), m.Comments)
	if len(m.Fields) == 0 {
		p.out.P()
		p.out.P("It has no fields.")
		return
	}
	p.out.P()
	p.out.P("| field | no. | type | meaning |")
	p.out.P("| --- | ---: | --- | --- |")
	for _, f := range m.Fields {
		meaning := oneLine(string(f.Comments.Leading))
		if f.Oneof != nil && !f.Oneof.Desc.IsSynthetic() {
			meaning = "one of `" + string(f.Oneof.Desc.Name()) + "`: " + meaning
		}
		p.out.P("| `", f.Desc.Name(), "` | ", f.Desc.Number(), " | ", fieldType(f), " | ", meaning, " |")
	}
}

func (p *page) enum(e *protogen.Enum) {
	p.heading("###", e.Desc.Name(), e.Comments)
	p.out.P()
	p.out.P("| value | no. | meaning |")
	p.out.P("| --- | ---: | --- |")
	for _, v := range e.Values {
		p.out.P("| `", v.Desc.Name(), "` | ", v.Desc.Number(), " | ", oneLine(string(v.Comments.Leading)), " |")
	}
}

func fieldType(f *protogen.Field) string {
	d := f.Desc
	switch {
	case d.IsMap():
		return fmt.Sprintf("map of %s to %s", kind(d.MapKey()), kind(d.MapValue()))
	case d.IsList():
		return "list of " + kind(d)
	}
	return kind(d)
}

func kind(d protoreflect.FieldDescriptor) string {
	switch {
	case d.Enum() != nil:
		return reference(d.Enum())
	case d.Message() != nil:
		return reference(d.Message())
	}
	return d.Kind().String()
}

// reference is a link to the type's own heading; types of others have none here.
func reference(d protoreflect.Descriptor) string {
	if strings.HasPrefix(string(d.FullName()), "google.") {
		return "`" + string(d.FullName()) + "`"
	}
	return fmt.Sprintf("[%s](#%s)", d.Name(), strings.ToLower(string(d.Name())))
}

func (p *page) heading(level string, name protoreflect.Name, comments protogen.CommentSet) {
	p.out.P()
	p.out.P(level, " ", name)
	p.text(string(comments.Leading))
}

// statusLine begins what a comment says of one status.
var statusLine = regexp.MustCompile(`^[A-Z]+_?[A-Z]+( \([A-Z]+\))?: `)

// text writes a comment, paragraph by paragraph. Statuses become a list.
func (p *page) text(comment string) {
	inList, inParagraph := false, false
	for line := range strings.Lines(comment) {
		line = escape(strings.TrimSpace(line))
		status := statusLine.MatchString(line)
		switch {
		case line == "":
			inList, inParagraph = false, false
			continue
		case status && !inList, !inParagraph:
			p.out.P()
		}
		inList, inParagraph = inList || status, true
		switch {
		case status:
			line = "- " + line
		case inList:
			line = "  " + line
		}
		p.out.P(line)
	}
}

func oneLine(comment string) string { return escape(strings.Join(strings.Fields(comment), " ")) }

var special = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `[`, `\[`, `]`, `\]`, `<`, `\<`, `|`, `\|`)

// escape keeps Markdown from seeing marks in what is plain text. What stands between back quotes is code already.
func escape(text string) string {
	parts := strings.Split(text, "`")
	for i := range parts {
		if i%2 == 0 {
			parts[i] = special.Replace(parts[i])
		}
	}
	return strings.Join(parts, "`")
}
