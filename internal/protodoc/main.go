// Protodoc is a plugin of buf that makes docs/protocol.md of the comments in the contract. `make generate` runs it.
package main

import (
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	protogen.Options{}.Run(generate)
}

// generate writes one page for the files that were asked for.
func generate(plugin *protogen.Plugin) error {
	plugin.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
	for _, file := range plugin.Files {
		if file.Generate {
			p := page{out: plugin.NewGeneratedFile("protocol.md", "")}
			p.file(file)
		}
	}
	return nil
}
