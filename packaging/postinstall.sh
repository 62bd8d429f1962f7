#!/bin/sh
# After an installation or an update. systemd is told of the unit; nothing is enabled, started or restarted that was not
# asked for.
set -e

if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
	systemctl daemon-reload
fi
