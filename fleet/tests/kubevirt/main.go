// Refuses a manifest that the Go types of KubeVirt's API do not have.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "kubevirt.io/api/core/v1"
)

func main() {
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	var found v1.VirtualMachineInstanceMigration
	if err := decoder.Decode(&found); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if found.Kind != "VirtualMachineInstanceMigration" || found.APIVersion != v1.GroupVersion.String() || found.Spec.VMIName == "" {
		fmt.Fprintln(os.Stderr, "it is no migration")
		os.Exit(1)
	}
}
