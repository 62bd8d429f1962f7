#!/bin/sh
# After the files are gone.
set -e

if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
	systemctl daemon-reload
fi
