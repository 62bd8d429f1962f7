package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// printConfig writes serve's settings as a configuration file that would make them, with the source of each. Those that have no value and must
// not be blank are comments.
func printConfig(ctx context.Context, a *app, fs *pflag.FlagSet) error {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	var comments []string
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		if sectionOf(f) != sectionServe {
			return
		}
		source := "# " + a.config.sources[f.Name]
		if isNotBlank(f) && f.Value.String() == "" {
			comments = append(comments, "# "+fileKey(f.Name)+": "+source)
			return
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: fileKey(f.Name)}
		value := yamlValue(f)
		if value.Kind == yaml.SequenceNode {
			comments = append(comments, source)
		} else {
			value.LineComment = source
		}
		key.HeadComment, comments = strings.Join(comments, "\n"), nil
		doc.Content = append(doc.Content, key, value)
	})
	var text bytes.Buffer
	e := yaml.NewEncoder(&text)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(doc), e.Close()); err != nil {
		return err
	}
	return a.report(ctx, func(w io.Writer) error {
		_, err := w.Write(text.Bytes())
		return err
	})
}

func yamlValue(f *pflag.Flag) *yaml.Node {
	var n yaml.Node
	switch v := f.Value.(type) {
	case listValue:
		n.Kind = yaml.SequenceNode
		for _, s := range *v.p {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s})
		}
	case choiceValue:
		n.SetString(v.String())
	default:
		n = yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
		if v.Type() == "string" {
			n.SetString(v.String())
		}
	}
	return &n
}

// checkTheRest is what --check-config looks at beside serve's own settings, and says that all is well.
func checkTheRest(a *app, o *serveOptions) error {
	if _, err := loadSecurity(o.files, nil); err != nil {
		return err
	}
	return checkClientSection(a)
}

// checkClientSection checks the values that clients would read from the same file.
func checkClientSection(a *app) error {
	fs := pflag.NewFlagSet(sectionClient, pflag.ContinueOnError)
	newClientOptions().addFlags(fs)
	if file := a.config.file; file != nil {
		var errs mistakes
		v := file.values()
		fs.VisitAll(func(f *pflag.Flag) {
			if err := a.config.applyFile(f, v); err != nil {
				errs = append(errs, err)
			}
		})
		if len(errs) > 0 {
			return errs.asConfigError()
		}
	}
	where := "no configuration file"
	if a.config.file != nil {
		where = a.config.file.path
	}
	_, err := fmt.Fprintf(a.err, "configuration ok (%s)\n", where)
	return err
}
