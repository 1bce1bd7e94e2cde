// Refuses an object that the Go types of KubeVirt's API do not have: a migration, or a guest.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	v1 "kubevirt.io/api/core/v1"
)

func check(text []byte) error {
	var kind struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if kind.APIVersion != v1.GroupVersion.String() {
		return fmt.Errorf("%s is another API", kind.APIVersion)
	}
	switch kind.Kind {
	case "VirtualMachineInstance":
		return decoder.Decode(&v1.VirtualMachineInstance{})
	case "VirtualMachineInstanceMigration":
		var found v1.VirtualMachineInstanceMigration
		if err := decoder.Decode(&found); err != nil {
			return err
		}
		if found.Spec.VMIName == "" {
			return fmt.Errorf("it names no guest")
		}
		return nil
	}
	return fmt.Errorf("%s is another kind", kind.Kind)
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = check(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
