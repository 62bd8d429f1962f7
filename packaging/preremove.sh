#!/bin/sh
# Before the package is removed. An update leaves the running broker alone: dpkg says "upgrade" then, rpm 1.
set -e

case "$1" in
upgrade | failed-upgrade | deconfigure | 1) exit 0 ;;
esac
if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
	systemctl disable --now --quiet tinybroker.service || true
fi
