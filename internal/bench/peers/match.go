package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

const (
	matchPatterns = 1_000_000
	matchTopics   = 4096
	matchTime     = 3 * time.Second
)

// natsPattern is a subscription of a large system, of the kinds that both sides can express: mostly literal topics, and
// wildcards for a segment in the middle and for the rest. The benchmark IndexMatchPlain in internal/core has the same.
func natsPattern(i int) string {
	switch i % 10 {
	case 0:
		return fmt.Sprintf("tenant.%d.*.created", i)
	case 1:
		return fmt.Sprintf("tenant.%d.>", i)
	case 2:
		return fmt.Sprintf("metrics.*.host-%d.cpu", i)
	}
	return fmt.Sprintf("tenant.%d.orders.created", i)
}

func matchTopic(r *rand.Rand, n int) string {
	i := r.IntN(n)
	switch r.IntN(3) {
	case 0:
		return fmt.Sprintf("tenant.%d.orders.created", i)
	case 1:
		return fmt.Sprintf("tenant.%d.invoices.eu.sent", i)
	}
	return fmt.Sprintf("metrics.eu.host-%d.cpu", i)
}

// natsMatch returns matches a second.
func natsMatch(context.Context, *settings) ([]float64, error) {
	list := natsserver.NewSublistNoCache()
	for i := range matchPatterns {
		if err := insert(list, natsPattern(i)); err != nil {
			return nil, err
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	topics := make([]string, matchTopics)
	for i := range topics {
		topics[i] = matchTopic(r, matchPatterns)
	}
	if !slices.ContainsFunc(topics, list.HasInterest) {
		return nil, errors.New("nothing matches")
	}
	n := 0
	start := time.Now()
	for time.Since(start) < matchTime {
		for _, topic := range topics {
			list.Match(topic)
		}
		n += len(topics)
	}
	return []float64{float64(n) / time.Since(start).Seconds()}, nil
}

// insert adds a subscription to list. Their type is not exported: reflection makes one, with the only field that matching
// needs.
func insert(list *natsserver.Sublist, subject string) error {
	method := reflect.ValueOf(list).MethodByName("Insert")
	sub := reflect.New(method.Type().In(0).Elem())
	field := sub.Elem().FieldByName("subject")
	if !field.IsValid() {
		return errors.New("a subscription has no subject")
	}
	*(*[]byte)(field.Addr().UnsafePointer()) = []byte(subject)
	err, _ := reflect.TypeAssert[error](method.Call([]reflect.Value{sub})[0])
	return err
}

var perOperation = regexp.MustCompile(`IndexMatchPlain\S*\s+\d+\s+([\d.]+) ns/op`)

// tinyMatch runs the benchmark that stands beside the index, which nobody outside of core can see.
func tinyMatch(ctx context.Context, _ *settings) ([]float64, error) {
	root, err := checkout(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkIndexMatchPlain$", "-benchtime", matchTime.String(), "./internal/core")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	found := perOperation.FindSubmatch(out)
	if found == nil {
		return nil, fmt.Errorf("no result in %q", out)
	}
	ns, err := strconv.ParseFloat(string(found[1]), 64)
	return []float64{1e9 / ns}, err
}
