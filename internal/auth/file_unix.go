//go:build unix

package auth

import (
	"fmt"
	"io/fs"
)

// openBits are the permissions that a secret must not give: anything to others, and writing to the group. The group may read: that is
// how services get their secrets, from systemd as from Kubernetes, from an owner who is not they.
const openBits = 0o027

// checkPrivate refuses a file that others than its owner and its group can read, or others than its owner can write.
func checkPrivate(info fs.FileInfo) error {
	if open := info.Mode().Perm() & openBits; open != 0 && info.Mode().IsRegular() {
		return fmt.Errorf("holds a secret and is open to others (mode %04o): chmod 600 it, or 640 for a group that may read it", info.Mode().Perm())
	}
	return nil
}
