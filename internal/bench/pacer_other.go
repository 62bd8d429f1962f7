//go:build !linux

package bench

import "context"

func newAlarm(ctx context.Context) alarm { return newTimerAlarm(ctx) }
