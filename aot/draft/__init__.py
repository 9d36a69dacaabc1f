"""First manifests, for the user to complete: from the source of a kernel, or from a recording of its launches."""
