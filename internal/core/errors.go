package core

import "errors"

// The errors of the broker. They come wrapped with what was wrong; test with errors.Is. Each can be told across the
// wire and back, so that a client sees the same ones.
var (
	// ErrTopicInvalid: the topic is not a legal topic name, or belongs to the broker. Sending it again will not help.
	ErrTopicInvalid = errors.New("invalid topic")
	// ErrPatternInvalid: the pattern cannot be parsed or exceeds a stated cap. The subscription was refused as a whole.
	ErrPatternInvalid = errors.New("invalid pattern")
	// ErrProtocol: a setting, a name or the order of requests is not legal.
	ErrProtocol = errors.New("protocol violation")
	// ErrMessageTooLarge: topic, key, headers and payload together exceed MaxMessageSize.
	ErrMessageTooLarge = errors.New("message too large")
	// ErrMemory: the broker holds max_memory bytes already. The message was queued nowhere; try again later.
	ErrMemory = errors.New("broker memory is full")
	// ErrGroupFull: a consumer group that rejects on overflow has no room. The message was queued nowhere; try again later.
	ErrGroupFull = errors.New("consumer group is full")
	// ErrGroupConfig: the group exists with other settings.
	ErrGroupConfig = errors.New("consumer group settings differ")
	// ErrQuota: a limit on how many there may be was reached, for example max_subscriptions. Try again later.
	ErrQuota = errors.New("quota exceeded")
	// ErrDraining: the broker is shutting down and takes nothing new.
	ErrDraining = errors.New("broker is draining")
	// ErrUnauthenticated: who asks has shown no credential, or none that is known. core asks for none; whoever lets callers in does.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrNotAllowed: who asks is known and has no right to that.
	ErrNotAllowed = errors.New("not allowed")
	// ErrNotFound: no such subscription.
	ErrNotFound = errors.New("not found")
)
