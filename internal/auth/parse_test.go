package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

const good = `# who may call
identities:
  - name: billing
    token_hash:
      - HASH0
      - HASH1   # while the token is being exchanged
    certificate_names: ["cn:billing", "dns:billing.example.org"]
    publish: {allow: ["orders.**"], deny: [orders.secret]}
    subscribe:
      allow: ["orders.**", "$tb.dlq.billing"]
    group: {allow: "billing*"}
  - name: ops
    token_hash: HASH2
    admin: true
`

// hashed puts the hashes of tokens t0, t1, … in the places of HASH0, HASH1, …
func hashed(text string) []byte {
	for i := range 10 {
		text = strings.ReplaceAll(text, fmt.Sprintf("HASH%d", i), HashToken(fmt.Sprintf("t%d", i)))
	}
	return []byte(text)
}

func TestParse(t *testing.T) {
	ids, err := Parse("auth.yaml", hashed(good))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range [][2]string{{"t0", "billing"}, {"t1", "billing"}, {"t2", "ops"}, {"t3", ""}, {"", ""}, {"t0 ", ""}, {HashToken("t0"), ""}} {
		token, want := test[0], test[1]
		id, err := ids.Find(TokenCredential(token))
		if got := nameOf(id); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", token, got, err, want)
		}
	}
	billing, _ := ids.Find(TokenCredential("t1"))
	if !billing.Publish.Match("orders.a.b") || billing.Publish.Match("orders.secret") || billing.Publish.Match("a") ||
		!billing.Subscribe.Match("orders.secret") || !billing.Subscribe.Match("$tb.dlq.billing") || billing.Subscribe.Match("$tb.dlq.x") ||
		!billing.Group.Match("billing-2") || billing.Group.Match("x") || billing.Admin {
		t.Errorf("%+v", billing)
	}
	// What is not said is not allowed.
	ops, _ := ids.Find(TokenCredential("t2"))
	if !ops.Admin || !ops.Publish.Nothing() || !ops.Subscribe.Nothing() || !ops.Group.Nothing() {
		t.Errorf("%+v", ops)
	}
	if len(ids.all) != 2 || len(ids.OnlyCertificates()) != 0 {
		t.Errorf("%d identities, %q", len(ids.all), ids.OnlyCertificates())
	}
}

// Yes is spelt in YAML's ways, each of which gives the right or is refused: who reads the file must not be wrong about who has it.
func TestAdminIsSpelt(t *testing.T) {
	for text, want := range map[string]bool{"true": true, "True": true, "TRUE": true, "!!bool true": true, "false": false, "False": false, "FALSE": false} {
		ids, err := Parse("auth.yaml", hashed("identities:\n- {name: a, token_hash: HASH0, admin: "+text+"}\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if id, _ := ids.Find(TokenCredential("t0")); id.Admin != want {
			t.Errorf("%s: admin is %t", text, id.Admin)
		}
	}
	for _, text := range []string{"yes", "on", "1", `"true"`, "!!bool 1", "!!bool", "", "~", "[true]"} {
		if _, err := Parse("auth.yaml", hashed("identities:\n- {name: a, token_hash: HASH0, admin: "+text+"}\n")); err == nil {
			t.Errorf("%s: is taken", text)
		}
	}
}

func nameOf(id *Identity) string {
	if id == nil {
		return ""
	}
	return id.Name
}

func TestCertificates(t *testing.T) {
	ids, err := Parse("auth.yaml", hashed(`identities:
- {name: a, certificate_names: "cn:a"}
- {name: b, certificate_names: ["dns:b.example", "uri:spiffe://example/b", "cn:b:c d"]}
- {name: c, certificate_names: ["dns:c"], token_hash: HASH0}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(ids.OnlyCertificates(), " "); got != "a b" {
		t.Errorf("without a token: %q", got)
	}
	spiffe := &url.URL{Scheme: "spiffe", Host: "example", Path: "/b"}
	for _, test := range []struct {
		name string
		leaf x509.Certificate
		want string
	}{
		{"common name", x509.Certificate{Subject: pkix.Name{CommonName: "a"}}, "a"},
		{"one of several names", x509.Certificate{DNSNames: []string{"x", "b.example"}}, "b"},
		{"URI", x509.Certificate{URIs: []*url.URL{spiffe}}, "b"},
		{"two names of one identity", x509.Certificate{URIs: []*url.URL{spiffe}, DNSNames: []string{"b.example"}}, "b"},
		{"a common name with odd characters", x509.Certificate{Subject: pkix.Name{CommonName: "b:c d"}}, "b"},
		{"a DNS name is no common name", x509.Certificate{DNSNames: []string{"a"}}, ""},
		{"a common name is no DNS name", x509.Certificate{Subject: pkix.Name{CommonName: "b.example"}}, ""},
		{"case", x509.Certificate{Subject: pkix.Name{CommonName: "A"}}, ""},
		{"names of two identities", x509.Certificate{Subject: pkix.Name{CommonName: "a"}, DNSNames: []string{"b.example"}}, ""},
		{"no name", x509.Certificate{}, ""},
	} {
		id, err := ids.Find(CertificateCredential(&test.leaf))
		if got := nameOf(id); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
	if _, err := ids.Find(Credential{}); !errors.Is(err, errNoCredential) {
		t.Errorf("nothing: %v", err)
	}
}

// Everything that is wrong with a file is said at once, with its place, and never with what could be a secret.
func TestParseMistakes(t *testing.T) {
	const secret = "tb_S3CR3T-zz"
	for _, test := range []struct {
		name, text string
		want       []string // line and a part of the text
	}{
		{"empty", "", []string{"1: names no identity"}},
		{"a line end", "\n", []string{"1: names no identity"}},
		{"a comment", "# nobody\n", []string{"1: names no identity"}},
		{"null", "~\n", []string{"1: nothing where a map"}},
		{"no identities", "identities:\n", []string{"1: identities: nothing where a list"}},
		{"an empty list", "identities: []\n", []string{"1: identities: is empty; there must be at least one identity"}},
		{"a token file", secret + "\n", []string{"1: a value where a map with identities belongs"}},
		{"unknown keys", "identities:\n- name: a\n  token_hash: HASH0\n  pubish: {}\n  " + secret + ": x\n  token: " + secret + "\nusers: []\n",
			[]string{"7: unknown key users; there are identities", "4: unknown key pubish; there are name", "5: unknown key; there are", "6: unknown key token; the file holds no tokens"}},
		{"a token in the place of its hash", "identities:\n- {name: a, token_hash: [" + secret + "]}\n", []string{"2: token_hash: is not sha256:"}},
		{"half a hash", "identities:\n- {name: a, token_hash: [\"sha256:abc\"]}\n", []string{"2: token_hash: is not sha256:"}},
		{"no hexadecimal", "identities:\n- {name: a, token_hash: [\"sha256:" + strings.Repeat("zz", 32) + "\"]}\n", []string{"2: token_hash: is not sha256:"}},
		{"the hash of nothing", "identities:\n- {name: a, token_hash: \"" + HashToken("") + "\"}\n", []string{"2: token_hash: is the hash of a blank token"}},
		{"blank tokens", "identities:\n- {name: a, token_hash: \"\"}\n- {name: b, token_hash: []}\n- {name: c, token_hash: }\n- name: d\n  token_hash:\n  - HASH0\n  - ' '\n",
			[]string{"2: token_hash: a blank entry", "3: token_hash: is empty", "4: token_hash: nothing where a list", "8: token_hash: a blank entry"}},
		{"nobody could be it", "identities:\n- name: a\n  admin: true\n", []string{"2: an identity with neither token_hash nor certificate_names"}},
		{"no name", "identities:\n- token_hash: HASH0\n- {name: '', token_hash: HASH1}\n- {name: , token_hash: HASH2}\n",
			[]string{"2: an identity without a name", "3: name: a value where a name", "4: name: nothing where a name"}},
		{"bad name", "identities:\n- {name: \"a\\nb\", token_hash: HASH0}\n", []string{"2: name \"a\\nb\": control character"}},
		{"the same twice", "identities:\n- {name: a, token_hash: HASH0, certificate_names: \"cn:x\"}\n- {name: a, token_hash: [HASH1, HASH1]}\n- {name: b, token_hash: HASH0, certificate_names: [\"cn:x\"]}\n",
			[]string{"3: name: there is an identity of this name already, in line 2", "3: token_hash: the same as in line 3", "4: token_hash: the same as in line 2", "4: certificate_names: the same as in line 2"}},
		{"a key twice", "identities:\n- name: a\n  name: b\n  token_hash: HASH0\n", []string{"3: name is set twice, first in line 2"}},
		{"certificate names", "identities:\n- {name: a, certificate_names: [a, \"cn:\", \"ip:1.2.3.4\", " + secret + "]}\n",
			[]string{"2: certificate_names: a name is cn:NAME", "2: certificate_names: a name is", "2: certificate_names: a name is", "2: certificate_names: a name is"}},
		{"patterns", "identities:\n- name: a\n  token_hash: HASH0\n  publish: {allow: [\"a.[b\", \"!c\"], deny: [\"\"]}\n  group: {alow: x}\n",
			[]string{"4: publish: allow: invalid pattern \"a.[b\"", "4: publish: allow: invalid pattern \"!c\": a permission has no exclusions", "4: publish: deny: a blank entry"}},
		{"permissions of other kinds", "identities:\n- name: a\n  token_hash: HASH0\n  publish: [a]\n  subscribe: all\n  group:\n  admin: yes please\n",
			[]string{"4: a list where a map with allow, deny", "5: a value where a map with allow, deny", "6: nothing where a map", "7: admin: neither true nor false"}},
		{"only denied", "identities:\n- name: a\n  token_hash: HASH0\n  publish: {deny: [a]}\n", []string{"4: publish: what is denied is denied anyway"}},
		{"an entry is a text", "identities:\n- a\n", []string{"2: a value where a map with name"}},
		{"not YAML", "identities:\n- {name: a, token_hash: " + secret + "\nx: [" + secret + "\n", []string{": is not YAML from here on"}},
		{"tabs", "identities:\n\t- name: a\n", []string{"2: is not YAML from here on"}},
		{"two documents", "identities:\n- {name: a, token_hash: HASH0}\n---\nidentities: []\n", []string{"a second YAML document"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ids, err := Parse("auth.yaml", hashed(test.text))
			if err == nil || ids != nil {
				t.Fatalf("is taken")
			}
			var list FileErrors
			if !errors.As(err, &list) || len(list) < len(test.want) {
				t.Errorf("%d mistakes: %v", len(list), err)
			}
			for _, e := range list {
				if len(e.Error()) > 300 || !strings.HasPrefix(e.Error(), "auth.yaml:") {
					t.Errorf("%q", e)
				}
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), "auth.yaml:"+want) && !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in\n%v", want, err)
				}
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), HashToken("t0")[7:]) {
				t.Errorf("a secret in %v", err)
			}
		})
	}
}

func TestParseBounds(t *testing.T) {
	var text strings.Builder
	text.WriteString("identities:\n")
	for i := range maxIdentities + 1 {
		fmt.Fprintf(&text, "- {name: n%d, token_hash: %q}\n", i, HashToken(fmt.Sprint("x", i)))
	}
	if _, err := Parse("a", []byte(text.String())); err == nil || !strings.Contains(err.Error(), "1001 identities, the most is 1000") {
		t.Errorf("%v", err)
	}
	text.Reset()
	text.WriteString("identities:\n- name: a\n  token_hash:\n")
	for i := range maxTokens + 1 {
		fmt.Fprintf(&text, "  - %q\n", HashToken(fmt.Sprint("x", i)))
	}
	if _, err := Parse("a", []byte(text.String())); err == nil || !strings.Contains(err.Error(), "4097 tokens, the most is 4096") {
		t.Errorf("%v", err)
	}
}

// What an anchor stands for is written once and read where it is used.
func TestParseAnchors(t *testing.T) {
	ids, err := Parse("a", hashed("identities:\n- {name: a, token_hash: HASH0, publish: &p {allow: [x]}}\n- {name: b, token_hash: HASH1, publish: *p}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := ids.Find(TokenCredential("t1")); !b.Publish.Match("x") {
		t.Error("an alias is not followed")
	}
}
